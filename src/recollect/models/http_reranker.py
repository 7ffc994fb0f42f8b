"""Reranking through HTTP servers with the API of Cohere and Jina, or of TEI."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from recollect.errors import InvalidInput, InvalidSettings, ModelUnavailable
from recollect.models.http_client import ModelHttpClient
from recollect.models.server_errors import describe_parse_error

RequestShape: TypeAlias = Literal["documents", "texts"]

# Common models read 512 tokens of a pair, and some scripts need a token for each character.
MAX_CHARACTERS = 4_000

# Two hundred texts, should the server send them all back, escaped.
MAX_ANSWER_BYTES = 16 << 20

# Rounding may carry a share a little past its ends; what lies further out is no share but a logit.
ROUNDING = 0.01


class HttpReranker:
    """Scores through POST {url}/rerank; `url` may already end in `rerank`.

    The texts are sent as `documents`; a server that refuses those is sent `texts`, and from then on only what it
    understood. Scores are taken as they come. Servers that answer logits, as some local ones do, are known by
    numbers outside 0 to 1, and those are turned into chances. Only the first 4,000 characters of a text are sent.
    """

    def __init__(self, url: str, api_key: str = "", *, model: str, timeout_s: float = 30.0) -> None:
        if not url:
            raise InvalidSettings("reranker_url must name the server of an HTTP reranker")
        self._model = model
        self._http = ModelHttpClient(
            url,
            api_key,
            path="" if url.rstrip("/").endswith("rerank") else "/rerank",
            model=model,
            timeout_s=timeout_s,
            max_answer_bytes=MAX_ANSWER_BYTES,
        )
        self._shape: RequestShape | None = None
        self._has_logits = False

    @property
    def name(self) -> str:
        return self._model

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return the server's score for each text in order, from 0 to 1."""
        if not texts:
            return []
        answer = await self._request(query[:MAX_CHARACTERS] or " ", [text[:MAX_CHARACTERS] or " " for text in texts])
        try:
            scores = _scores(json.loads(answer), count=len(texts))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise ModelUnavailable(
                f"{self._http.display_url} answered no scores: {describe_parse_error(error)}"
            ) from error
        # Once seen, always so: a later answer may happen to lie within 0 and 1.
        self._has_logits = self._has_logits or any(not -ROUNDING <= score <= 1 + ROUNDING for score in scores)
        return [_chance(score) if self._has_logits else min(max(score, 0.0), 1.0) for score in scores]

    async def close(self) -> None:
        await self._http.close()

    async def _request(self, query: str, texts: list[str]) -> bytes:
        """Return the response to a body in the server's format, which the first call detects."""
        if self._shape is not None:
            return await self._http.post(self._body(self._shape, query, texts))
        try:
            answer = await self._http.post(self._body("documents", query, texts))
        except InvalidSettings:
            raise
        except InvalidInput as refusal:
            try:
                answer = await self._http.post(self._body("texts", query, texts))
            except InvalidInput:
                # The more usual shape's refusal tells more about what is wrong.
                raise refusal from None
            self._shape = "texts"
            return answer
        self._shape = "documents"
        return answer

    def _body(self, shape: RequestShape, query: str, texts: list[str]) -> dict[str, Any]:
        if shape == "texts":
            return {"query": query, "texts": texts, "truncate": True}
        return {"model": self._model, "query": query, "documents": texts, "top_n": len(texts)}


def _scores(answer: Any, *, count: int) -> list[float]:
    """Return the scores in the order of the texts; raise an error if the response is malformed."""
    rows = answer if isinstance(answer, list) else answer.get("results", answer.get("data"))
    if not isinstance(rows, list):
        raise ValueError("there is no list of results")
    by_index = {row["index"]: _number(row.get("relevance_score", row.get("score"))) for row in rows}
    if len(rows) != count or sorted(by_index) != list(range(count)):
        raise ValueError(f"{len(rows)} results for {count} texts, or not one for each")
    return [by_index[at] for at in range(count)]


def _number(score: object) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ValueError("a score is not a finite number")
    return float(score)


def _chance(logit: float) -> float:
    # Beyond this the chance is 0 to the last digit, and the exponential overflows.
    return 0.0 if logit < -700 else 1 / (1 + math.exp(-logit))
