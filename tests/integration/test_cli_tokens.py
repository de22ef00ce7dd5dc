"""The commands for tokens and the audit, over a real replica set."""

import json

import pytest
from pymongo.database import Database

from tests.support.cli import CommandLine, restored_logging
from tests.support.mongo import MongoServer
from tests.support.stores import Json

__all__ = ["restored_logging"]

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("restored_logging")]


@pytest.fixture
def commands(mongo_server: MongoServer, data: Database[Json]) -> CommandLine:
    return CommandLine(KIKWIFLOW_MONGODB_URI=mongo_server.uri, KIKWIFLOW_MONGODB_DATABASE=data.name)


def test_a_token_lives_from_create_to_revoke(commands: CommandLine, data: Database[Json]) -> None:
    created = commands.run("tokens", "create", "ana", "--role", "operator", "--tenant", "shop")
    secret = created.stdout.strip()
    listed = commands.json("tokens", "list")
    rotated = commands.json("tokens", "rotate", "ana", "--overlap", "1h", "--expires-in", "30d")
    revoked = commands.run("tokens", "revoke", "ana")

    assert created.exit_code == revoked.exit_code == 0
    assert secret.startswith("kwf_")
    assert secret not in created.stderr, "what goes to a file or a pipe is the secret alone"
    assert "operator, tenant shop" in created.stderr
    (token,) = listed["items"]
    assert (token["name"], token["roles"], token["tenant_id"]) == ("ana", ["operator"], "shop")
    assert "secret" not in token
    assert rotated["secret"] not in {secret, ""}
    assert "within 5 seconds" in revoked.stdout
    assert "revoked" in commands.run("tokens", "list").stdout
    stored = str(list(data.api_tokens.find()))
    assert secret not in stored
    assert rotated["secret"] not in stored


def test_a_script_can_tell_what_went_wrong(commands: CommandLine) -> None:
    commands.run("tokens", "create", "ana", "--role", "viewer", "--all-tenants")

    again = commands.run("tokens", "create", "ana", "--role", "viewer", "--all-tenants")
    unknown = commands.run("tokens", "revoke", "bob")
    for wrong in (
        ["create", "bob", "--role", "viewer"],
        ["create", "bob", "--role", "viewer", "--tenant", "shop", "--all-tenants"],
        ["create", "bob", "--role", "root", "--all-tenants"],
        ["create", "bob", "--all-tenants"],
        ["create", "bob", "--role", "viewer", "--all-tenants", "--expires-in", "soon"],
    ):
        assert commands.run("tokens", *wrong).exit_code == 2, wrong

    assert (again.exit_code, unknown.exit_code) == (1, 1)
    assert "rotate it for a new secret" in again.stderr
    assert "tokens list" in unknown.stderr


def test_the_audit_is_listed_by_who_what_and_about_what(commands: CommandLine) -> None:
    commands.run("tokens", "create", "ana", "--role", "viewer", "--all-tenants")
    commands.run("tokens", "create", "bob", "--role", "viewer", "--all-tenants")
    commands.run("tokens", "revoke", "ana")

    everything = commands.json("audit", "list", "--limit", "2")
    rest = commands.json("audit", "list", "--cursor", everything["next_cursor"])
    about_ana = commands.json("audit", "list", "--about", "ana")
    revoked = commands.run("audit", "list", "--operation", "revokeToken")

    assert [each["operation"] for each in everything["items"]] == ["revokeToken", "createToken"]
    assert [each["subjects"]["name"] for each in rest["items"]] == ["ana"]
    assert {each["operation"] for each in about_ana["items"]} == {"createToken", "revokeToken"}
    assert "name=ana" in revoked.stdout
    assert "bob" not in revoked.stdout
    assert commands.json("audit", "list", "--actor", "nobody")["items"] == []
    assert json.dumps(everything).count("kwf_") == 0
