"""The settings of who may ask a server: declared once, typed, bounded."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class AuthSettings(BaseModel):
    """Who may ask the server, and how they show it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    auth: Annotated[
        str,
        Field(
            description="Who may ask: auto (whoever has a key, a trusted gateway or a token; anyone on this machine "
            "while none of them is set up), off, or some of keys, gateway and jwt, separated by commas."
        ),
    ] = "auto"
    trusted_gateways: Annotated[
        str, Field(description="Addresses or networks, separated by commas, that may say in a header who is asking.")
    ] = ""
    gateway_user_header: Annotated[str, Field(description="The header in which they name the user.")] = (
        "x-authz-user-id"
    )
    gateway_project_header: Annotated[
        str, Field(description="The header in which they name the project; empty for none.")
    ] = ""
    jwt_jwks_url: Annotated[str, Field(description="Where the keys are published that sign users' tokens.")] = ""
    jwt_issuer: Annotated[str, Field(description="Who issues the tokens: their iss.")] = ""
    jwt_audience: Annotated[str, Field(description="For whom they are issued: their aud.")] = ""
    jwt_user_claim: Annotated[str, Field(description="The claim of a token that names the user.")] = "sub"
    jwt_project_claim: Annotated[
        str, Field(description="The claim of a token that names the project; empty for none.")
    ] = ""
    jwt_skew_s: Annotated[float, Field(ge=0, le=600, description="How far the clock of the issuer may be off.")] = (
        30.0
    )
