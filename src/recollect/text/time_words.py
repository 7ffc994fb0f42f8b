"""Time words in English, German, French and Spanish, in lower case and composed form."""

from __future__ import annotations

from collections.abc import Mapping


def _named(table: str) -> dict[str, str]:
    """Parse lines of "name: its words" into a map from word to name."""
    lines = (line.split(":") for line in table.strip().splitlines())
    return {word: name.strip() for name, words in lines for word in words.split()}


def _numbered(*groups: str, start: int = 1) -> dict[str, int]:
    """Return a map from word to the number of its group."""
    return {word: number for number, words in enumerate(groups, start) for word in words.split()}


UNITS: Mapping[str, str] = _named("""
    minute: minute minutes minuten minuto minutos
    hour: hour hours stunde stunden heure heures hora horas
    day: day days tag tage tagen jour jours día días dia dias
    week: week weeks woche wochen semaine semaines semana semanas
    fortnight: fortnight fortnights
    month: month months monat monate monaten monats mois mes meses
    quarter: quarter quarters quartal quartale quartalen trimestre trimestres
    season: season
    year: year years jahr jahre jahren jahres an ans année années annee año años
    decade: decade decades jahrzehnt jahrzehnte décennie década
    weekend: weekend weekends wochenende wochenenden
""")
# "Half a year ago" is meant more exactly than "a year ago".
HALVES: Mapping[str, tuple[str, float, float]] = {
    "hour": ("minute", 30, 30),
    "day": ("hour", 12, 12),
    "month": ("week", 2, 2),
    "year": ("month", 6, 6),
    "decade": ("year", 5, 5),
}
# "Three days ago" takes a count; so many and no more than so many are meant by it.
COUNTS: Mapping[str, tuple[float, float]] = {
    **{
        word: (number, number)
        for word, number in _numbered(
            "a an one ein eine einem einen einer un une una uno",
            "two zwei deux dos",
            "three drei trois tres",
            "four vier quatre cuatro",
            "five fünf cinq cinco",
            "six sechs seis",
            "seven sieben sept siete",
            "eight acht huit ocho",
            "nine neun neuf nueve",
            "ten zehn dix diez",
            "eleven elf onze once",
            "twelve zwölf douze doce",
        ).items()
    },
    **dict.fromkeys(("couple", "paar"), (2, 3)),
    **dict.fromkeys(("few", "einigen", "einige", "quelques", "unos", "unas", "algunos", "algunas"), (2, 5)),
    **dict.fromkeys(("several", "many", "mehreren", "plusieurs", "varios", "varias", "muchos"), (3, 8)),
    **{word: (float(n), float(n)) for word, n in (("twenty", 20), ("thirty", 30), ("fifteen", 15), ("zwanzig", 20))},
}

LAST = frozenset(
    "last previous letzte letzten letzter letztes letztem vorige vorigen voriger voriges vergangene vergangenen "
    "vergangener vergangenes dernier derniers dernière dernières derniere dernieres pasado pasada pasados "
    "pasadas".split()
)
# "The past week" is the last seven days, "last week" the week before this one.
PAST = frozenset("past último última últimos últimas ultimo ultima ultimos ultimas".split())
THIS = frozenset("this current diese diesen dieser dieses diesem ce cet cette este esta".split())
NEXT = frozenset(
    "next coming upcoming following nächste nächsten nächster nächstes nächstem kommende kommenden kommender "
    "kommendes prochain prochaine prochains prochaines suivant suivante próximo próxima proximo proxima "
    "siguiente".split()
)
LAST_BUT_ONE = frozenset("vorletzte vorletzten vorletzter vorletztes".split())
LAST_AFTER = frozenset("dernier dernière derniere passé passée pasado pasada".split())
RECURRING = frozenset("every each per jeden jede jedes jeder chaque cada".split())
ALTERNATE = frozenset("other second zweiten zweite deuxième segundo".split())
ORDINALS = frozenset(
    "first second third fourth fifth ersten erster zweiten zweiter dritten dritter vierten vierter premier deuxième"
    " troisième quatrième primer segundo tercer cuarto".split()
)
OF = frozenset("of in im du des del de".split())
AGO_BEFORE = frozenset("vor hace".split())
AGO_OPENS = AGO_BEFORE | {"il"}
ABOUT = frozenset("about around roughly almost nearly etwa ungefähr circa rund environ unos casi".split())

# Days counted back from today.
DAYS_BACK: Mapping[str, int] = _numbered(
    "today heute aujourd hoy", "yesterday gestern hier ayer", "vorgestern anteayer antier", start=0
)
# "Hier" is "here" in German: it is yesterday only among words that are French.
FRENCH = frozenset("ai avons avez ont je nous vous qu que quoi c d j l la les soir matin avant fait dit".split())
NIGHTS_BACK: Mapping[str, int] = {"tonight": 0, "anoche": 1}
LATELY = frozenset("recently lately kürzlich neulich récemment recientemente últimamente".split())
# Hours of the day they begin and end at.
DAY_PARTS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("morning", "morgen", "matin"), (4, 12)),
    **dict.fromkeys(("afternoon", "nachmittag"), (12, 18)),
    **dict.fromkeys(("evening", "abend", "soir"), (17, 24)),
    **dict.fromkeys(("night", "nacht", "nuit"), (18, 30)),
}
WEEKDAYS: Mapping[str, int] = _numbered(
    "monday montag lundi lunes",
    "tuesday dienstag mardi martes",
    "wednesday mittwoch mercredi miércoles miercoles",
    "thursday donnerstag jeudi jueves",
    "friday freitag vendredi viernes",
    "saturday samstag sonnabend samedi sábado",
    "sunday sonntag dimanche domingo",
    start=0,
)
MONTHS: Mapping[str, int] = _numbered(
    "january jan januar jänner janvier enero",
    "february feb februar février fevrier febrero",
    "march mar märz mars marzo",
    "april apr avril abril",
    "may mai mayo",
    "june jun juni juin junio",
    "july jul juli juillet julio",
    "august aug août aout agosto",
    "september sep sept septembre septiembre",
    "october oct oktober octobre octubre",
    "november nov novembre noviembre",
    "december dec dezember décembre decembre diciembre",
)
# Months that are no other word and nobody's name: they need nothing beside them.
PLAIN_MONTHS = frozenset(
    "january february july september october november december januar februar oktober dezember janvier février "
    "juillet septembre octobre novembre décembre enero febrero septiembre octubre noviembre diciembre".split()
)
# What follows "may" where it is a verb.
AFTER_MAY = frozenset(
    "i you he she we they it be have not also well need want contain help seem take get make cause the a my".split()
)
VERB_MONTHS = frozenset(["may", "march", "mar"])
# In English one is a planet, one a sauce and one too short to tell.
ROMANCE_MONTHS = frozenset(["mars", "mayo", "mar"])
SEASONS: Mapping[str, int] = {
    word: month
    for month, words in (
        (3, "spring frühling frühjahr printemps primavera"),
        (6, "summer sommer été verano"),
        (9, "autumn fall herbst automne otoño"),
        (12, "winter hiver invierno"),
    )
    for word in words.split()
}

BEFORE = frozenset("before vor avant antes".split())
AFTER = frozenset("after nach après apres después despues".split())
SINCE = frozenset("since seit depuis desde ab".split())
UNTIL = frozenset("until till bis hasta jusqu".split())
FROM = frozenset("between from zwischen von vom entre de du desde".split())
TO = frozenset("to through thru until till bis hasta - – —".split())
AND = frozenset("and und et y a à au al".split())
OR = frozenset("or oder ou o ,".split())
# Words that may stand between "before" and what it is before.
FILLERS = frozenset("the in of on le la les l ' el los las de del der dem den im".split())
ARTICLES = frozenset("the der dem den el la '".split())

PARTS: Mapping[str, int] = _numbered(
    "early beginning start anfang début debut principios comienzos",
    "mid middle mitte mi mediados",
    "late end ende fin finales",
    start=0,
)
# What makes a month, a day of one, a year or a season of a word that could be something else, by standing before it.
_EDGES = BEFORE | AFTER | SINCE | UNTIL
BEFORE_MONTH = (
    frozenset("in during throughout im en durant pendant de del ' month mid".split()) | _EDGES | LAST | PAST | THIS
)
BEFORE_ROMANCE_MONTH = frozenset("en de del ' depuis desde hasta avant antes après después este pasado".split())
BEFORE_DAY = frozenset("on the since before after until till from between by am le el vom seit".split())
BEFORE_YEAR = (
    frozenset("in during throughout around by year jahr im en année año between from zwischen von entre".split())
    | _EDGES
)
BEFORE_SEASON = frozenset("in during over im en since durant pendant depuis desde".split())
# What follows "spring" where it is the name of something.
AFTER_SPRING = frozenset("boot framework mvc security cloud".split())
# What a number of four digits counts when it is not a year.
COUNTED = frozenset(
    "dollar dollars bucks usd eur euro euros pounds yen people users customers words characters tokens lines pages "
    "steps miles meters metres km kg kcal calories points items times hours minutes days years rows files requests "
    "calls ml mg w watts mah rpm dólares personas palabras personnes mots leute wörter schritte % € $ £".split()
)
# What may follow the year 2000, which is also a round number.
AFTER_ROUND_YEAR = frozenset("i we you he she they it did was were the when and or to".split())
