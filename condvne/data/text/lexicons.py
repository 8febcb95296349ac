"""Lexicons: lists of terms whose mentions are counted, and how they are found in texts.

Three short lists were written for this package; a file of one term a line gives another.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from condvne.data.compressed import read_text
from condvne.errors import ConfigError, DataError

COUNTRIES = """Afghanistan; Albania; Algeria; Andorra; Angola; Argentina; Armenia; Australia; Austria; Azerbaijan;
Bahamas; Bahrain; Bangladesh; Barbados; Belarus; Belgium; Belize; Benin; Bhutan; Bolivia; Bosnia; Botswana; Brazil;
Brunei; Bulgaria; Burkina Faso; Burundi; Cambodia; Cameroon; Canada; Cape Verde; Chad; Chile; China; Colombia;
Comoros; Congo; Costa Rica; Croatia; Cuba; Cyprus; Czech Republic; Denmark; Djibouti; Dominica; Dominican Republic;
East Timor; Ecuador; Egypt; El Salvador; Equatorial Guinea; Eritrea; Estonia; Eswatini; Ethiopia; Fiji; Finland;
France; Gabon; Gambia; Georgia; Germany; Ghana; Greece; Grenada; Guatemala; Guinea; Guinea-Bissau; Guyana; Haiti;
Honduras; Hungary; Iceland; India; Indonesia; Iran; Iraq; Ireland; Israel; Italy; Ivory Coast; Jamaica; Japan; Jordan;
Kazakhstan; Kenya; Kiribati; Kosovo; Kuwait; Kyrgyzstan; Laos; Latvia; Lebanon; Lesotho; Liberia; Libya;
Liechtenstein; Lithuania; Luxembourg; Madagascar; Malawi; Malaysia; Maldives; Mali; Malta; Marshall Islands;
Mauritania; Mauritius; Mexico; Micronesia; Moldova; Monaco; Mongolia; Montenegro; Morocco; Mozambique; Myanmar;
Namibia; Nauru; Nepal; Netherlands; New Zealand; Nicaragua; Niger; Nigeria; North Korea; North Macedonia; Norway;
Oman; Pakistan; Palau; Palestine; Panama; Papua New Guinea; Paraguay; Peru; Philippines; Poland; Portugal; Qatar;
Romania; Russia; Rwanda; Saint Lucia; Samoa; San Marino; Saudi Arabia; Senegal; Serbia; Seychelles; Sierra Leone;
Singapore; Slovakia; Slovenia; Solomon Islands; Somalia; South Africa; South Korea; South Sudan; Spain; Sri Lanka;
Sudan; Suriname; Sweden; Switzerland; Syria; Taiwan; Tajikistan; Tanzania; Thailand; Togo; Tonga; Trinidad and Tobago;
Tunisia; Turkey; Turkmenistan; Tuvalu; Uganda; Ukraine; United Arab Emirates; United Kingdom; United States; Uruguay;
Uzbekistan; Vanuatu; Vatican City; Venezuela; Vietnam; Yemen; Zambia; Zimbabwe"""
SPORTS = """archery; athletics; badminton; baseball; basketball; biathlon; billiards; bobsleigh; bowling; boxing;
canoeing; climbing; cricket; croquet; curling; cycling; darts; diving; equestrian; fencing; field hockey; figure
skating; football; golf; gymnastics; handball; hockey; horse racing; ice hockey; judo; karate; kayaking; lacrosse;
luge; marathon; motor racing; netball; orienteering; pole vault; polo; rowing; rugby; sailing; shooting;
skateboarding; skiing; snooker; snowboarding; soccer; softball; speed skating; squash; sumo; surfing; swimming; table
tennis; taekwondo; tennis; triathlon; volleyball; water polo; weightlifting; wrestling"""
OCCUPATIONS = """accountant; actor; actress; architect; artist; astronaut; athlete; attorney; author; baker; banker;
barber; biologist; blacksmith; bookkeeper; bricklayer; bus driver; butcher; carpenter; cashier; chef; chemist; clerk;
coach; composer; conductor; cook; courier; dancer; dentist; designer; detective; doctor; economist; editor;
electrician; engineer; farmer; firefighter; fisherman; flight attendant; florist; gardener; geologist; goldsmith;
hairdresser; historian; janitor; jeweller; journalist; judge; lawyer; lecturer; librarian; lifeguard; locksmith;
machinist; manager; mathematician; mayor; mechanic; midwife; miner; musician; nurse; optician; painter; paramedic;
pharmacist; philosopher; photographer; physician; physicist; pilot; plumber; poet; police officer; politician;
postman; priest; professor; programmer; prosecutor; psychologist; publisher; receptionist; roofer; sailor; salesman;
scientist; sculptor; secretary; security guard; senator; singer; social worker; soldier; statistician; surgeon;
surveyor; tailor; taxi driver; teacher; technician; translator; truck driver; tutor; undertaker; veterinarian; waiter;
waitress; watchmaker; welder; writer"""
LEXICONS: Mapping[str, tuple[str, ...]] = {
    name: tuple(" ".join(term.split()) for term in text.split(";"))
    for name, text in (("countries", COUNTRIES), ("sports", SPORTS), ("occupations", OCCUPATIONS))
}


class Lexicon:
    """Terms, found in texts whole-word and case-insensitively; of overlapping ones the longest counts.

    Words of a term may be parted by any white space.

    >>> Lexicon("places", ["Guinea", "Papua New Guinea"]).counts("In PAPUA new  Guinea, not in Guineas.")
    Counter({'Papua New Guinea': 1})
    """

    def __init__(self, name: str, terms: Iterable[str]) -> None:
        self.name = name
        self.terms = tuple(dict.fromkeys(" ".join(term.split()) for term in terms))
        if not self.terms or not all(self.terms):
            raise ConfigError(f"lexicon {name!r}: holds no terms, or an empty one; give one term a line.")
        self._names = {term.casefold(): term for term in self.terms}
        if len(self._names) < len(self.terms):
            raise ConfigError(f"lexicon {name!r}: holds terms that differ in case only; give each once.")
        longest_first = sorted(self.terms, key=len, reverse=True)
        either = "|".join(r"\s+".join(map(re.escape, term.split())) for term in longest_first)
        self._pattern = re.compile(rf"(?<!\w)(?:{either})(?!\w)", re.IGNORECASE)

    def counts(self, text: str, begin: int = 0) -> Counter[str]:
        """How often each term ends in the text behind its first `begin` characters."""
        found = (match for match in self._pattern.finditer(text) if match.end() > begin)
        return Counter(self._names[" ".join(match[0].split()).casefold()] for match in found)


def load_lexicon(given: str) -> Lexicon:
    """A lexicon by its name (countries, sports, occupations) or from a file of one term a line; "#" begins a comment.

    Raises ConfigError for what is neither, and for a file without terms.
    """
    if given in LEXICONS:
        return Lexicon(given, LEXICONS[given])
    try:
        lines = read_text(given).splitlines()
    except DataError as error:
        raise ConfigError(
            f"lexicon {given!r}: is neither one of {', '.join(LEXICONS)} nor a file that can be read ({error})."
        ) from error
    terms = [term for line in lines if (term := line.partition("#")[0].strip())]
    return Lexicon(Path(given).name.split(".")[0], terms)
