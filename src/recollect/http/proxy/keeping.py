"""(to be replaced)"""

from __future__ import annotations

import asyncio
from typing import Any

from recollect.model.change import By


class Keeping:
    def __init__(self, service: Any, *, read_s: float) -> None:
        self._service, self._read_s = service, read_s

    async def read(self, looking: Any) -> str:
        try:
            async with asyncio.timeout(self._read_s):
                await looking
            return ""
        except TimeoutError:
            return "timeout"
        except Exception:
            import logging

            logging.getLogger("recollect").exception("x")
            return "store_unavailable"

    async def write(self, scope: Any, messages: Any) -> Any:
        try:
            kept = await self._service.remember(scope, messages, by=By("proxy"))
            return tuple(kept), ""
        except Exception:
            import logging

            logging.getLogger("recollect").exception("x")
            return (), "store_unavailable"
