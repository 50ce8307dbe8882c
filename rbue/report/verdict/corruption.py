"""Calibration on corrupted images: median ECEs over the 19 corruptions, severity by severity."""

from rbue.report.claims.evidence import listed, places_text
from rbue.report.claims.scopes import DE as ENSEMBLE
from rbue.report.claims.scopes import P5, SHIFTED_ECE, SINGLE, SVI
from rbue.report.columns import decimals, from_to
from rbue.report.rows import PROPOSED, paper_order, place_name
from rbue.report.verdict.answers import NOTHING, UNKNOWN, Found, answer, protocols_and_places
from rbue.report.verdict.evidence import Evidence, papers_or_all

BASELINES = (SINGLE, P5, ENSEMBLE, SVI)


def under_corruption(e: Evidence) -> Found:
    """Compare the best variant with the other methods. All networks count; the one that most rows were tested on is
    described in full."""
    tested = {
        place: (e.rows(place, PROPOSED, *SHIFTED_ECE), e.rows(place, BASELINES, *SHIFTED_ECE))
        for place in e.ours.places
    }
    places = papers_or_all([place for place, (variants, others) in tested.items() if variants and others])
    if not places:
        return UNKNOWN, NOTHING[1] + unused(e)
    places.sort(key=lambda place: -sum(map(len, tested[place])))
    wins = {place: severities_won(e, place, *tested[place]) for place in places}
    text = described(e, places[0], *tested[places[0]], than(wins[places[0]]))
    for place in places[1:]:
        text += (
            f". On {place_name(*place)} ({len(tested[place][0])} of {len(PROPOSED)} variants measured), the best "
            f"variant's median ECE is lower {than(wins[place])}"
        )
    return answer([won > 2 for found in wins.values() for won in found.values()]), text + unused(e)


def described(e: Evidence, place: tuple, variants: list[str], others: list[str], lower_than: str) -> str:
    """Describe one network in full: rows, seeds, passes, severities won, and the median ECEs at the highest one."""
    rows, absent = [*variants, *others], [row for row in BASELINES if row not in others]
    hardest = listed([f"{e.ours.values[*place, row, SHIFTED_ECE[-1]].mean:.3f} for {row}" for row in rows])
    ours, theirs = (from_to(e.ours.n[*place, row, SHIFTED_ECE[0]] for row in part) for part in (variants, others))
    seeds = f"n = {ours}" + (f"; baselines: n = {theirs}" if theirs != ours else "")
    passes = f"; {from_to(e.corrupted_passes[place], decimals(0))} passes" if place in e.corrupted_passes else ""
    return (
        f"On {place_name(*place)}, {len(variants)} of {len(PROPOSED)} variants are measured "
        f"({seeds}{passes}). The best variant's median ECE over 19 corruptions "
        f"is lower {lower_than}. At severity 5, the median ECE is {hardest}"
        + (f". Not measured there: {', '.join(absent)}" if absent else "")
    )


def unused(e: Evidence) -> str:
    """Name the runs on corrupted images that the answer leaves out; empty if there are none."""
    places = sorted({cell[:2] for cell in e.incomplete}, key=paper_order)
    lacking = {place: [row for row in (*BASELINES, *PROPOSED) if (*place, row) in e.incomplete] for place in places}
    shown = "; ".join(f"{places_text([place])}: {', '.join(found)}" for place, found in lacking.items() if found)
    text = f". Runs that lack some of the 19 types are not used ({shown})" if shown else ""
    if e.unused_corrupted:
        text += f". Measured, but not used here, with {protocols_and_places(e.unused_corrupted)}"
    return text


def severities_won(e: Evidence, place: tuple, rows: list[str], others: list[str]) -> dict[str, int]:
    """Return {other row: the number of severities at which the best of the rows has a lower median ECE}."""
    ece = {row: [e.ours.values[*place, row, metric].mean for metric in SHIFTED_ECE] for row in [*rows, *others]}
    best = [min(found) for found in zip(*(ece[row] for row in rows), strict=True)]
    return {other: sum(own < theirs for own, theirs in zip(best, ece[other], strict=True)) for other in others}


def than(wins: dict[str, int]) -> str:
    """Return "than Single's at all 5 severities; it is lower than SVI's at no severity". Rows with the same number
    share a clause."""
    others = {won: listed([f"{other}'s" for other in wins if wins[other] == won]) for won in wins.values()}
    counts = {won: {5: "all 5 severities", 0: "no severity"}.get(won, f"{won} of 5 severities") for won in others}
    return "; it is lower ".join(f"than {names} at {counts[won]}" for won, names in others.items())
