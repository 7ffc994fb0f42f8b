"""Restrict a transaction to the rows of a tenant by PostgreSQL's row-level security.

Policies use two settings. `recollect.whose` is "=ann" for the rows of ann and "*" for all rows; `recollect.digest` is
the digest of the user, for tables without names. Without settings no row is visible. Superusers and roles with
BYPASSRLS are exempt.
"""

from __future__ import annotations

from typing import Any

from recollect.errors import InvalidText
from recollect.ledger.sql.tx import ALL_TENANTS, NO_TENANT, Tenant
from recollect.model.erasure import user_digest
from recollect.model.text import is_storable

# The subquery is evaluated once per statement, not once per row.
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
    """Return the values of the two settings."""
    if tenant is ALL_TENANTS:
        return "*", "*"
    if tenant is NO_TENANT:
        return "", ""
    assert isinstance(tenant, str)
    if not is_storable(tenant):
        raise InvalidText("a user's name holds a character that PostgreSQL cannot keep (NUL, or half of one)")
    return f"={tenant}", user_digest(tenant)


def tenant_statements(tenant: Tenant) -> str:
    """Return statements that restrict the rest of a transaction to a tenant."""
    name, digest = _tenant_settings(tenant)
    # An escape string means the same whatever `standard_conforming_strings` is.
    name = name.replace("\\", "\\\\").replace("'", "''")
    return f"SET LOCAL recollect.whose = E'{name}'; SET LOCAL recollect.digest = '{digest}'"


class TenantConnection:
    """Remembers the tenant that single statements on a connection are restricted to."""

    _current_settings: tuple[str, str] | None = None

    async def set_tenant(self, tenant: Tenant, timeout_s: float | None) -> None:
        """Restrict statements outside of transactions to a tenant; costs nothing if they are already."""
        values = _tenant_settings(tenant)
        if self._current_settings == values:
            return
        # If this is cancelled the settings of the connection are unknown.
        self._current_settings = None
        connection: Any = self
        await connection.execute(_SET_TENANT, *values, timeout=timeout_s)
        self._current_settings = values


def security_warnings(unguarded: list[tuple[bool, str]], where: str) -> list[str]:
    """Return warnings for tables on which no policy is in force, and whether the role is the reason."""
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
