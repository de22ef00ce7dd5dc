"""The store's contract once more, with every value of a variable encrypted."""

import pytest

from tests.contract.test_branches import *  # noqa: F403 - all of it
from tests.contract.test_child_writes import *  # noqa: F403
from tests.contract.test_commits import *  # noqa: F403
from tests.contract.test_group_arrivals import *  # noqa: F403
from tests.contract.test_group_commits import *  # noqa: F403
from tests.contract.test_group_writes import *  # noqa: F403
from tests.contract.test_handing_on import *  # noqa: F403
from tests.contract.test_people import *  # noqa: F403
from tests.contract.test_variables_in_store import *  # noqa: F403
from tests.contract.test_waiting import *  # noqa: F403
from tests.support.sealed import client, store  # noqa: F401 - fixtures

pytestmark = pytest.mark.deep
