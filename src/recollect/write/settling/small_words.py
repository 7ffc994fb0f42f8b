"""The small words by which a statement is read: what may stand before, behind and between others."""

from __future__ import annotations

AUXILIARY = frozenset("is are was were be been being has have had am got get gets getting".split())
# "For a week" is no "every week".
LASTING = frozenset("for in within of about take takes took lasts spent".split())
JOINS = frozenset("and or nor und oder y o e et ou".split())
MY = frozenset(
    "my mine our ours mein meine meinen meinem unser unsere mi mis mon ma mes notre nos mio mia miei мой моя".split()
)
# An order may begin with these.
BEFORE_ORDERS = frozenset("please do not always never just kindly only".split())
# A statement without these has but one clause.
CLAUSES = frozenset("but and or nor who whom whose which that because if when while so although unless than".split())
WHOSE = frozenset("user's my our his her their your".split())
# Behind these a small word of another language is a name: "Mia is".
BEHIND_NAMES = frozenset(["is", "was", "has", "'s", "and", "will", "wants", "likes"])
# What comes before one of these is set against what comes behind.
SPLITS = frozenset(["but", "while", "whereas"])
LIKING = frozenset(["like", "prefer", "mind", "avoid", "enjoy"])
# Participles that tell of no past, those before which something is suffered, and what goes on.
TIMELESS = frozenset("located situated based made".split())
# How something stands or looks in a picture: "two owls perched on a fence" are perched there.
POSED = frozenset(
    "perched seated dressed clad parked covered surrounded filled lined stacked decorated piled".split()
)
SUFFERING = frozenset(["being", "been", "be", "get", "gets", "getting", "got"])
SINCE = frozenset(["for", "since"])
# Verbs of which one form is of the present and of the past.
OF_BOTH_TIMES = frozenset(
    "hurt cut put set hit shut split spread got cost bet burst cast let read beat bid upset shed knit".split()
)
STATES = frozenset("lasted lived worked stayed known owned held".split())
# "In the mornings" is every morning.
HABITUAL = frozenset("mornings afternoons evenings nights weekends weekdays summers winters".split())
ALSO_NAMES = frozenset("mia mis ma mes mon mi io yo ik eu meu nos ben das la el al lo le son don will mark".split())
# What comes behind these must not change places: "from Rome to Oslo", "wash before you cook".
PIVOTS = frozenset("before after from to until von nach avant après antes después".split())
# Nouns stand behind these, and a name behind those of the second kind tells where or when, not who.
BEFORE_NOUNS = frozenset("a an the my our his her their its no user's of".split())
PLACING = frozenset("in on at near during for around".split())
SIDES = frozenset(["befor", "after", "until"])
WITHIN = frozenset("not never also already just recently always".split())
DEGREES = frozenset("some little fluent basic native perfect poor".split())
MODALS = frozenset("should must will can may might would to never not usually".split())
# As readings hold them: what one only is or has, and what one has.
BEING, HAVING = frozenset(["be", "have"]), frozenset(["have", "own"])
MONEY = frozenset("$€£¥₹")
CURRENCIES = frozenset("dollar euro pound yen rupe franc".split())
ENGLISH_NUMBERS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety".split()
)
HALVES = {"morning": "am", "afternoon": "pm", "evening": "pm"}
# Nouns that are made of verbs tell of no time: "the promotion" is not "promotes".
NOUN_ENDS = ("tion", "sion", "ment", "ance", "ence", "val", "sal")
# Several of something, without an "s" at the end.
PLURALS = frozenset("people men women children sheep fish cattle deer geese mice feet teeth folk police".split())
# Those who are young without saying so.
CHILDREN = frozenset("boy boys girl girls child children kid kids baby babies toddler toddlers".split())
PREFERS = frozenset("prefer prefers preferred".split())
INSTEAD = frozenset(["instead", "rather"])
CLOCK = frozenset(["am", "pm", "o'clock"])
PREPOSITIONS = frozenset("of in on at to from for by with about into like and or".split())
FINISHED = frozenset(["finished", "completed"])
MUCH = frozenset("once one several few couple many some much times time thousand dozen hundred half most".split())
