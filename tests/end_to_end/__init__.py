"""Both planes as processes of their own, real Postgres and Redis, fake model hosts; official clients from outside."""
