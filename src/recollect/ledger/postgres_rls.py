"""Whose rows a transaction may touch, said to PostgreSQL: its policies keep every statement to them.

Policies go by two settings. `recollect.whose` is "=ann" for the rows of ann, "*" for everyone's; `recollect.digest`
is what stands for the user where the name must not stay. Where nothing is said nothing is seen. A role that is a
superuser or has BYPASSRLS is not kept to anything.
"""

from __future__ import annotations

from typing import Any

from recollect.errors import InvalidText
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, Tenant
from recollect.model.erasure import user_digest
from recollect.model.text import is_storable

# Asked once for a statement, not once for a row, because of the SELECT around it.
ALL_ROWS = "(SELECT current_setting('recollect.whose', true)) = '*'"
OWN_ROWS = f"user_id = (SELECT substr(current_setting('recollect.whose', true), 2)) OR {ALL_ROWS}"
OWN_ROWS_BY_DIGEST = f"user_id = (SELECT current_setting('recollect.digest', true)) OR {ALL_ROWS}"

_SET_TENANT = "SELECT set_config('recollect.whose', $1, false), set_config('recollect.digest', $2, false)"
UNGUARDED = (
    "SELECT r.rolsuper OR r.rolbypassrls, c.relname FROM pg_catalog.pg_class c, pg_catalog.pg_roles r "
    "WHERE r.rolname = current_user AND c.relnamespace = current_schema()::regnamespace AND EXISTS "
    "(SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = c.oid) AND NOT row_security_active(c.oid) "
    "ORDER BY c.relname"
)


def _tenant_settings(tenant: Tenant) -> tuple[str, str]:
    """What the two settings are for them."""
    if tenant is ALL_TENANTS:
        return "*", "*"
    if tenant is NO_TENANT:
        return "", ""
    assert isinstance(tenant, str)
    if not is_storable(tenant):
        raise InvalidText("a user's name holds a character that PostgreSQL cannot keep (NUL, or half of one)")
    return f"={tenant}", user_digest(tenant)


def tenant_statements(tenant: Tenant) -> str:
    """Statements that keep what follows in a transaction to the rows of these."""
    name, digest = _tenant_settings(tenant)
    # Written as a text with escapes, which means the same whatever the server makes of plain ones.
    name = name.replace("\\", "\\\\").replace("'", "''")
    return f"SET LOCAL recollect.whose = E'{name}'; SET LOCAL recollect.digest = '{digest}'"


class TenantConnection:
    """What is added to a connection of the driver: it knows whose rows single statements on it are kept to."""

    _current_settings: tuple[str, str] | None = None

    async def set_tenant(self, tenant: Tenant, timeout_s: float | None) -> None:
        """Keep statements outside of transactions to the rows of these; costs nothing if they are already."""
        values = _tenant_settings(tenant)
        if self._current_settings == values:
            return
        # Whoever is cut off here leaves a connection of which nothing is known.
        self._current_settings = None
        connection: Any = self
        await connection.execute(_SET_TENANT, *values, timeout=timeout_s)
        self._current_settings = values


def security_warnings(unguarded: list[tuple[bool, str]], where: str) -> list[str]:
    """What to say of tables on which no policy is in force for us, and whether that is because of our role."""
    if not unguarded:
        return []
    if unguarded[0][0]:
        return [
            f"{where}: the role is a superuser or has BYPASSRLS, so that row-level security does not hold for it; "
            "use one that owns the tables and is neither (docs/serving.md)"
        ]
    tables = [table for _, table in unguarded]
    return [
        f"{where}: row-level security is off for {', '.join(tables)}; turn it on with ALTER TABLE ... "
        "ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
    ]
