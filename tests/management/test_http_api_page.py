"""The calls that docs/howto/use-the-http-api.md shows, one after another, against a real server."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.support.docs import ROOT, blocks_of
from tests.support.mongo import MongoServer
from tests.support.running_management import running_management

PAGE = ROOT / "docs" / "howto" / "use-the-http-api.md"

PRINTED = """\
{"isDryRun":true,"problems":[]}
{"key":"order","version":1,"created":true}
304
started once
ACTIVE
{"status":409,"code":"CONFLICT"}
{"activeNodes":["SHIP"],"tasks":["PENDING"]}
["ORDER-1"]
{"total":1,"isCapped":false}
[{"handlerName":"ship_order","isServed":false}]
"rail"
0
2
{"fromVersion":1,"toVersion":2,"problems":[],"migrated":false}
{"migrated":true}
CANCELLED
state
end
"""


@pytest.mark.mongo
@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="the page's calls need curl and jq"
)
def test_the_calls_of_the_page_do_what_it_says(
    mongo_server: MongoServer, data: Database[dict[str, Any]], tmp_path: Path
) -> None:
    script = "".join(block.text for block in blocks_of(PAGE) if block.language == "bash")

    with running_management(mongo_server.uri, data.name) as server:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "API": server.api},
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )

    assert done.stderr == ""
    assert done.stdout == PRINTED
    assert done.returncode == 0
