"""Secrets are redacted; texts that only look like one are unchanged."""

from __future__ import annotations

from collections import Counter
from time import thread_time

import pytest

from recollect.write.redact import redact
from recollect.write.secret_rules import secret_rules
from tests.support.linear_time import assert_linear
from tests.support.secret_samples import KINDS, samples

HARMLESS = [
    "Call me at +1 (415) 555-2671 or 415-555-2671, or +49 170 1234567.",
    "Meine Telefonnummer ist 0171 2345678.",
    "My order number is 112-4456789-1234567, the invoice is 2024-0001234.",
    "The order number is 4111111111111111.",
    "The tracking number is 9400111899223197428490, or was it 1Z999AA10123456784?",
    "The meeting is on 2024-03-15T10:30:00Z, that is 1710498600000.",
    "It cost $1,234,567.89 and had 4,111,111,111 views.",
    "Commit 9fceb02d0ae598e95dc970b74767f19372d61af8 broke it.",
    "sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "The run 550e8400-e29b-41d4-a716-446655440000 failed.",
    "ISBN 978-3-16-148410-0, IMEI 490154203237518, VIN 1HGCM82633A004352",
    "My zip is 94110-1234.",
    "Part 912-71-1234 is in stock, and so is part 457555462.",
    "457555462 is the number of my social worker.",
    "I follow 457555462 accounts on social media.",
    "On social media it had 457555462 views. Socials are fun.",
    "4242 people came in 2024 1999 2001",
    "Room DE12 is at the end of 2024 hall",
    "I lost my password yesterday.",
    "My password is not working.",
    "My password manager is 1Password and I love it.",
    "The password must be at least 8 characters.",
    "password: required, minLength 8",
    "User(name=name, password=password)",
    "password = os.environ['DB_PASSWORD']",
    "password=get_password()",
    "Passwort vergessen?",
    "Monthly pass: $100/month",
    "La clave es escuchar.",
    "senha incorreta",
    "The secret to happiness is gratitude-and-patience-always.",
    "The key is under the doormat, and the token limit is 128000.",
    "token = process.env.MY_ACCESS_TOKEN_2",
    "I use sk-learn-extensions-for-forecasting.",
    "He was the bearer of bad-news-for-everyone.",
    "Pin the tail on the donkey: 4 kids came. PIN code 110001 is Delhi.",
    "https://example.com:8080/path@2x.png and bob@example.com",
    "My password is too long!",
    "I forgot my pin, and the password policy is strict.",
    "pass: the salt",
    "My pin is broken, it was 2500 years old.",
    "The pin is 1234 miles away; I moved the pin to 4821 Main Street.",
    "I use pin 13 for the LED and pin 4 for the sensor.",
    "I use KeePass2 as my password manager; Route66 is my password hint.",
    "I never use names as my password, and Face ID is my password now.",
    "My pw is wrong, and the ski pass is valid2day.",
    "The password is the name of my first dog.",
    "The password is strong enough for our needs, my passphrase is longer than yours.",
    "My password is driving everybody crazy lately.",
    "My password was changed to something safer.",
    "password: must contain eight letters",
]

REDACTED = {
    "my password is hunter2, ok?": "my password is [redacted: password], ok?",
    "the password is sunshine.": "the password is [redacted: password].",
    "the password is sunshine\nthanks": "the password is [redacted: password]\nthanks",
    'the password for my mail is "open sesame"': 'the password for my mail is "[redacted: password]"',
    "login bob, pass: hunter2": "login bob, pass: [redacted: password]",
    "postgres://bob:s3cr3t@db.example:5432/x": "postgres://bob:[redacted: password]@db.example:5432/x",
    "Visa 4111-1111-1111-1111, cvc: 123": "Visa [redacted: card number], cvc: [redacted: PIN]",
    "4111 1111 1111 1111 and 5500 0000 0000 0004": "[redacted: card number] and [redacted: card number]",
    "IBAN DE89 3704 0044 0532 0130 00 thanks": "IBAN [redacted: bank account] thanks",
    "DE89370400440532013000 GB29NWBK60161331926819": "[redacted: bank account] [redacted: bank account]",
    "de89 3704 0044 0532 0130 00 is mine": "[redacted: bank account] is mine",
    "my ssn is 123 45 6780": "my ssn is [redacted: social security number]",
    "My SSN is 078-05-1120": "My SSN is [redacted: social security number]",
    "078-05-1120 is my social": "[redacted: social security number] is my social",
    "219099999 is my SSN.": "[redacted: social security number] is my SSN.",
    "my social is 457 55 5462, ok?": "my social is [redacted: social security number], ok?",
    "Her social's 457-55-5462": "Her social's [redacted: social security number]",
    "the ITIN is 912-71-1234": "the ITIN is [redacted: social security number]",
    "my PIN is 4821": "my PIN is [redacted: PIN]",
    "The PIN for my card is 4821": "The PIN for my card is [redacted: PIN]",
    "I changed my pin to 4821, ok?": "I changed my pin to [redacted: PIN], ok?",
    "I use the pin 4821 for my phone.": "I use the pin [redacted: PIN] for my phone.",
    "4821 is my PIN.": "[redacted: PIN] is my PIN.",
    "card_pin: 4821": "card_pin: [redacted: PIN]",
    "I use hunter22 as my wifi password.": "I use [redacted: password] as my wifi password.",
    "hunter22 is my password": "[redacted: password] is my password",
    "hunter22 ist mein Passwort": "[redacted: password] ist mein Passwort",
    "my pw is hunter22": "my pw is [redacted: password]",
    "My password's hunter22, by the way": "My password's [redacted: password], by the way",
    "My Netflix password was changed to Qwerty99!": "My Netflix password was changed to [redacted: password]",
    "my password is now hunter22": "my password is now [redacted: password]",
    "the password is correct horse battery staple.": "the password is [redacted: password].",
    "My passphrase: sunny otter bridge": "My passphrase: [redacted: password]",
    "pass: S3cr3t!": "pass: [redacted: password]",
    "x-api-key: 8f14e45fceea167a5a36dedd4bea2543": "x-api-key: [redacted: secret key]",
    "my seed phrase is apple banana cherry dog elephant frog grape horse island jacket king lemon": (
        "my seed phrase is [redacted: recovery phrase]"
    ),
    "密码是abc12345": "密码是[redacted: password]",
    "パスワードはneko1234です": "パスワードは[redacted: password]です",
}


def is_left(secret: str, text: str) -> bool:
    """Return whether the text contains the secret or eight consecutive characters of it."""
    core = secret.rstrip("!*_=")
    size = min(8, len(core))
    return any(core[at : at + size] in text for at in range(len(core) - size + 1))


def test_at_least_95_percent_of_secrets_of_every_kind_are_caught() -> None:
    made, missed = Counter[str](), Counter[str]()
    for kind, text, secret in samples():
        made[kind] += 1
        missed[kind] += is_left(secret, redact(text).text)
    assert made.total() >= 400
    assert len(KINDS) >= 20
    assert missed.total() <= 0.05 * made.total()
    # No kind may fail at the expense of the others.
    assert {kind: count for kind, count in missed.items() if count > 0.2 * made[kind]} == {}


def test_redaction_is_idempotent() -> None:
    for _, text, _ in samples(5):
        once = redact(text).text
        assert redact(once).text == once


def test_a_text_that_only_looks_like_a_secret_is_unchanged() -> None:
    assert [redacted.text for text in HARMLESS if (redacted := redact(text)).kinds] == []
    assert [redact(text).text for text in HARMLESS] == HARMLESS


def test_a_secret_is_replaced_by_its_kind() -> None:
    assert {text: redact(text).text for text in REDACTED} == REDACTED


def test_the_kinds_are_returned_in_order() -> None:
    assert redact("my password is hunter2, my card is 4111 1111 1111 1111").kinds == ("password", "card number")


@pytest.mark.parametrize(
    "wrong",
    ["4111 1111 1111 1112", "DE88 3704 0044 0532 0130 00", "000-12-3456", "666-12-3456", "1111 1111 1111 1111"],
)
def test_a_number_with_wrong_check_digits_is_no_secret(wrong: str) -> None:
    assert redact(f"It says {wrong} here").kinds == ()


@pytest.mark.parametrize("text", ["my card is 630427373398", "my cc: 4047737215142"])
def test_a_short_card_number_is_redacted_after_a_word_for_card(text: str) -> None:
    assert redact(text).kinds == ("card number",)
    assert redact(text.replace("card", "lot").replace("cc", "lot")).kinds == ()


def test_a_truncated_private_key_is_redacted() -> None:
    body = "\n".join(["MIIEpAIBAAKCAQEA7bq3" * 3] * 4)
    text = redact(f"here:\n-----BEGIN RSA PRIVATE KEY-----\n{body}\nI will send the rest later").text
    assert "MIIE" not in text
    assert text.endswith("I will send the rest later")


def test_redaction_of_an_ordinary_turn_takes_less_than_a_millisecond() -> None:
    text = (
        "Last week I went to Lisbon with my sister Anna for 5 days, and we spent about $1,200 in all. She wants to go"
        " again in May, but I would rather see Porto. Can you find out what a flight on the 12th would cost?"
    )
    redact(text)

    def seconds(trial: int) -> float:
        # A text that was redacted lately is not searched again.
        texts = [f"{trial} {number} {text}" for number in range(50)]
        start = thread_time()
        for each in texts:
            redact(each)
        return (thread_time() - start) / 50

    assert min(map(seconds, range(10))) < 0.000_4


UNITS = [
    "apple zoo ", "apple, ", "otp ", "otp a", "creds: a / ", "log in as a with ", "mysql -p", "curl -u a:",
    "docker login ", "export A_TOKEN=", "machine a login b ", "LS0tLS1CRUdJTi", "otpauth:", "4 1 ",
    "card 4111.1111.", "\"d\":", "pass: ",
    "a", "1", "1 ", "1234 ", "4111111111111111 ", "AA11 ", "DE11 ", "DE89370400440532013000 ", "1-", "sk-", "sk-a1",
    "eyJ", "eyJaaaaaaaa.", "://a:", "://", ":@", "password ", "password is ", "password=", "passwort: a ", "pass=",
    "key is ", "key-is-", "key-", "key=", "token ", "secret", "bearer ", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN ", "-", "Private-Lines: 1 ", "seed phrase is ", "seed phrase abc ", "seed phrase is abcd abcd ",
    "xoxb-", "AKIA", "hooks.slack.com/services/", "sig=", "?sig=", "123456789:AA", "MTIz.", "pin ", "pin: 1",
    "123-45-", "密码", "密码是", "\"password\": ", "'", "İ", "\n", " ", "=",
]  # fmt: skip


# Contains every hint, so that every expression is tried on the text before it.
ALL_HINTS = " ".join(UNITS)


def test_redaction_takes_time_in_proportion_to_the_text() -> None:
    for unit in UNITS:
        assert_linear(redact, unit, chars=40_000, end=ALL_HINTS)


def test_every_public_rule_takes_time_in_proportion_to_the_text() -> None:
    rules = secret_rules()
    for hint in rules.by_hint:
        assert_linear(redact, f"{hint}=", chars=8_000)
    assert_linear(redact, "= ".join(rules.by_hint), chars=40_000)


@pytest.mark.parametrize(
    "text",
    [
        "my card is 4111.1111.1111.1111",
        "４１１１ １１１１ １１１１ １１１１",
        "card ٤١١١١١١١١١١١١١١١",
        "my card number is 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    ],
)
def test_a_card_number_is_found_with_other_separators_and_digits(text: str) -> None:
    assert redact(text).kinds == ("card number",)


def test_a_phrase_of_listed_words_is_found_without_a_name() -> None:
    phrase = "legal winner thank year wave sausage worth useful legal winner thank yellow"
    assert redact(f"keep this: {phrase}.").text == "keep this: [redacted: recovery phrase]."
    listed = " ".join(f"{number}. {word}" for number, word in enumerate(phrase.split(), 1))
    assert redact(listed).kinds == ("recovery phrase",)
    for other in (phrase.replace("year", "yearly"), "a very " + "very " * 30 + "large budget", "hurry horse " * 10):
        assert redact(other).kinds == ()
