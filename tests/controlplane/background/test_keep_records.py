"""What has had its time is forgotten, and nothing else."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from controlplane.background.keep_records import KeepRecords
from controlplane.operations import audit
from controlplane.operations.context import Caller
from controlplane.store.session import Database
from tests.controlplane.stage import Call


async def test_expired_keys_and_old_records_go(database: Database, call: Call) -> None:
    kept = await call("CreateAccessKey", Role="reader")
    old = await call("CreateAccessKey", Role="reader")
    new = await call("RotateAccessKey", AccessKeyId=old["AccessKeyId"], GraceSeconds=0)
    rotated = await call("RotateAccessKey", AccessKeyId=kept["AccessKeyId"], GraceSeconds=60)
    now = datetime.now(UTC)
    async with database.transaction() as session:
        for days in (9, 11):
            audit.record(session, now - timedelta(days=days), Caller(), "DeleteModel", "OK", {"ModelName": f"m{days}"})
    assert await KeepRecords(database, audit_days=10).run() == 60
    async with database.transaction() as session:
        records = (await session.execute(text("SELECT resource FROM audit_record"))).scalars().all()
    assert records == ["m9"]
    left = {key["AccessKeyId"] for key in (await call("ListAccessKeys"))["AccessKeys"]}
    assert left == {key["AccessKeyId"] for key in (kept, new, rotated)}
