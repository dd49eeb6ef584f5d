"""The migrated database of the control plane's tests, for commands that work on one."""

from tests.controlplane.conftest import migrated_database as migrated_database
from tests.controlplane.conftest import migrated_template as migrated_template
from tests.controlplane.conftest import migrated_url as migrated_url
