"""Random secrets of many kinds, in typical sentences."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Iterator

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
URL_SAFE = ALNUM + "-_"
UPPER = string.ascii_uppercase + string.digits

SENTENCES = [
    "{}",
    "Hi! My key is {}, please use it for the deploy.",
    "I set it up yesterday with {} and it works now",
    "ok so here you go:\n{}\nthanks a lot",
    "Can you check why `{}` is refused by the server?",
    "Remember this: {}. I will need it on Monday.",
    'config = "{}"',
    "Mein Zugang ist {} und er gilt bis Mai.",
]


class Draw:
    """A generator of random secrets, determined by its seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, alphabet: str, size: int) -> str:
        """Return so many characters, with at least one letter and one digit."""
        drawn = self.random.choices(alphabet, k=size)
        drawn[size // 3], drawn[size // 2] = "7", "e" if "e" in alphabet else "E"
        return "".join(drawn)

    def one_of(self, *texts: str) -> str:
        return self.random.choice(texts)

    def digits(self, size: int) -> str:
        return "".join(self.random.choices(string.digits, k=size))

    def card(self) -> str:
        first, size = self.random.choice(
            [("4", 16), ("51", 16), ("2221", 16), ("37", 15), ("6011", 16), ("3530", 16)]
        )
        body = first + self.digits(size - len(first) - 1)
        body += luhn_digit(body)
        between = self.one_of("", " ", "-")
        cuts = (4, 10) if size == 15 else (4, 8, 12)
        return between.join(body[a:b] for a, b in zip((0, *cuts), (*cuts, size), strict=True))

    def iban(self) -> str:
        country, bban = self.random.choice(
            [
                ("DE", self.digits(18)),
                ("GB", "NWBK" + self.digits(14)),
                ("FR", self.digits(23)),
                ("NL", "ABNA" + self.digits(10)),
                ("ES", self.digits(20)),
                ("IT", "X" + self.digits(22)),
                ("PL", self.digits(24)),
                ("CH", self.digits(17)),
            ]
        )
        check = 98 - int("".join(str(int(each, 36)) for each in f"{bban}{country}00")) % 97
        number = f"{country}{check:02}{bban}"
        return (
            number if self.random.random() < 0.5 else " ".join(number[at : at + 4] for at in range(0, len(number), 4))
        )

    def ssn(self) -> str:
        area = self.random.choice([number for number in range(1, 900) if number != 666])
        return f"{area:03}-{self.random.randint(1, 99):02}-{self.random.randint(1, 9999):04}"

    def pem(self) -> str:
        kind = self.one_of("RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "")
        lines = "\n".join(self.some(ALNUM + "+/", 64) for _ in range(6))
        return f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----"

    def jwt(self) -> str:
        def part(value: object) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

        return f"{part({'alg': 'HS256'})}.{part({'sub': self.digits(9)})}.{self.some(URL_SAFE, 43)}"

    def webhook(self) -> str:
        return f"T{self.some(UPPER, 8)}/B{self.some(UPPER, 8)}/{self.some(ALNUM, 24)}"

    def basic(self) -> str:
        return base64.b64encode(f"user7:{self.some(ALNUM, 12)}".encode()).decode()

    def password(self) -> str:
        word = self.one_of("Winter", "hunter", "dragon", "Sonne", "perro", "letmein", "qwerty")
        return self.one_of(
            f"{word}{self.digits(3)}", f"{word}!{self.digits(2)}", self.some(ALNUM + "!#%&*", 12), f"{word}_X9"
        )


def luhn_digit(body: str) -> str:
    total = 0
    for at, digit in enumerate(reversed(body)):
        doubled = int(digit) * (2 if at % 2 == 0 else 1)
        total += doubled - 9 if doubled > 9 else doubled
    return str(-total % 10)


# By kind: what is written, and within it the part that must not stay.
Made = tuple[str, str]

KINDS: dict[str, Callable[[Draw], Made]] = {}


def alone(make: Callable[[Draw], str]) -> Callable[[Draw], Made]:
    return lambda draw: ((secret := make(draw)), secret)


def within(form: str, make: Callable[[Draw], str]) -> Callable[[Draw], Made]:
    def made(draw: Draw) -> Made:
        secret = make(draw)
        return form.format(secret), secret

    return made


def spoken_secret(*forms: str) -> Callable[[Draw], Made]:
    def made(draw: Draw) -> Made:
        secret = draw.password()
        return draw.random.choice(forms).format(secret), secret

    return made


KINDS |= {
    "openai": alone(lambda d: d.one_of("sk-", "sk-proj-", "sk-svcacct-") + d.some(URL_SAFE, 48)),
    "anthropic": alone(lambda d: "sk-ant-api03-" + d.some(URL_SAFE, 93)),
    "aws key id": alone(lambda d: d.one_of("AKIA", "ASIA") + d.some(UPPER, 16)),
    "aws secret": within("aws_secret_access_key = {}", lambda d: d.some(ALNUM + "/+", 40)),
    "github": alone(lambda d: d.one_of("ghp_", "gho_", "ghs_", "ghu_", "ghr_") + d.some(ALNUM, 36)),
    "github fine": alone(lambda d: f"github_pat_{d.some(ALNUM, 22)}_{d.some(ALNUM, 59)}"),
    "gitlab": alone(lambda d: "glpat-" + d.some(URL_SAFE, 20)),
    "slack": alone(lambda d: f"{d.one_of('xoxb', 'xoxp')}-{d.digits(12)}-{d.digits(12)}-{d.some(ALNUM, 24)}"),
    "slack webhook": within("https://hooks.slack.com/services/{}", Draw.webhook),
    "google": alone(lambda d: "AIza" + d.some(URL_SAFE, 35)),
    "stripe": alone(lambda d: d.one_of("sk_live_", "rk_live_", "sk_test_") + d.some(ALNUM, 24)),
    "ours": alone(lambda d: "rk_" + d.some(ALNUM, 43)),
    "sendgrid": alone(lambda d: f"SG.{d.some(URL_SAFE, 22)}.{d.some(URL_SAFE, 43)}"),
    "mailchimp": alone(lambda d: f"{d.some(HEX, 32)}-us{d.one_of('1', '12', '21')}"),
    "twilio": alone(lambda d: "SK" + d.some(HEX, 32)),
    "npm": alone(lambda d: "npm_" + d.some(ALNUM, 36)),
    "pypi": alone(lambda d: "pypi-AgEIcHlwaS5vcmc" + d.some(URL_SAFE, 120)),
    "hugging face": alone(lambda d: "hf_" + d.some(ALNUM, 34)),
    "telegram": alone(lambda d: f"{d.random.randint(10**8, 10**10 - 1)}:AA{d.some(URL_SAFE, 33)}"),
    "jwt": alone(Draw.jwt),
    "pem": alone(Draw.pem),
    "bearer": within("Authorization: Bearer {}", lambda d: d.some(ALNUM + "._-", 40)),
    "basic": within("Authorization: Basic {}", Draw.basic),
    "url": within("postgresql://app:{}@db.example.com:5432/app", lambda d: d.some(ALNUM + "!*", 14)),
    "api key": within("api_key: {}", lambda d: d.some(HEX, 32)),
    "client secret": within("the client secret is {}", lambda d: d.some(ALNUM, 40)),
    "azure": within("AccountName=a;AccountKey={}==;", lambda d: d.some(ALNUM + "+/", 86)),
    "card": alone(Draw.card),
    "iban": alone(Draw.iban),
    "ssn": alone(Draw.ssn),
    "password=": spoken_secret("password={}", "PASSWORD: {}", 'DB_PASSWORD="{}"', '{{"password": "{}"}}', "pwd={}"),
    "password en": spoken_secret(
        "my password is {}", "the wifi password for the flat is {}", "I changed my password to {}", "passcode: {}"
    ),
    "password de": spoken_secret("mein Passwort ist {}", "das Kennwort lautet {}", "Passwort: {}",
        "das WLAN-Passwort ist {}"),
    "password es": spoken_secret("mi contraseña es {}", "la contraseña del wifi es {}", "contraseña: {}",
        "la clave es {}"),
    "password fr": spoken_secret("mon mot de passe est {}", "mot de passe : {}", "le mot de passe du wifi est {}"),
    "password pt": spoken_secret("minha senha é {}", "senha: {}", "a senha do wifi é {}"),
    "password it": spoken_secret("la mia password è {}", "password: {}"),
    "password nl": spoken_secret("mijn wachtwoord is {}", "wachtwoord: {}"),
    "password pl": spoken_secret("moje hasło to {}", "hasło: {}"),
    "password ru": spoken_secret("мой пароль {}", "пароль: {}", "пароль от почты это {}"),
    "password zh": spoken_secret("我的密码是{}", "密码：{}"),
    "password ja": spoken_secret("パスワードは{}です", "パスワード：{}"),
}  # fmt: skip


def samples(each: int = 15) -> Iterator[tuple[str, str, str]]:
    """Yield kind, text and secret, so many of each kind."""
    draw = Draw(20)
    for kind, make in KINDS.items():
        for at in range(each):
            output, secret = make(draw)
            sentence = "{}" if "\n" in output else SENTENCES[at % len(SENTENCES)]
            yield kind, sentence.replace("{}", output), secret
