"""Calibration on corrupted images: median ECEs over the 19 corruptions, severity by severity."""

from typing import NamedTuple

from rbue.report.claims.evidence import listed, places_text, row_text
from rbue.report.claims.numbers import BLOCK
from rbue.report.claims.scopes import DE as ENSEMBLE
from rbue.report.claims.scopes import P5, SHIFTED_ECE, SINGLE, SVI
from rbue.report.columns import decimals, from_to
from rbue.report.rows import PROPOSED, paper_order, place_name, protocol_text
from rbue.report.verdict.answers import NOTHING, UNKNOWN, Found, answer, protocols_and_places
from rbue.report.verdict.evidence import Evidence, papers_or_all

BASELINES = (SINGLE, P5, ENSEMBLE, SVI)
OTHERS = (SINGLE, P5, P5 + BLOCK, ENSEMBLE, SVI)  # dropout in every block is compared where it is measured


class Tested(NamedTuple):
    """The variants and the other rows that one protocol has on corrupted images of one network."""

    evidence: Evidence
    place: tuple
    variants: list[str]
    others: list[str]


def under_corruption(e: Evidence) -> Found:
    """Compare the best variant with the other methods. All networks count; the one that most rows were tested on is
    described in full."""
    networks = tested(e)
    if not networks:
        return Found(UNKNOWN, NOTHING.sentence + unused(e, networks))
    wins = [severities_won(network) for network in networks]
    text = described(e, networks[0], lower(wins[0]))
    for network, won in zip(networks[1:], wins[1:], strict=True):
        text += (
            f". On {named(e, network)}, where {len(network.variants)} of {len(PROPOSED)} variants are measured, the "
            f"best variant's median ECE is {lower(won)}"
        )
    verdict = answer([won > 2 for found in wins for won in found.values()])
    return Found(verdict, text + unused(e, networks), in_brief(e, networks[0]))


def tested(e: Evidence) -> list[Tested]:
    """Return the networks with a variant and a baseline, those with most rows first. Each has the first protocol that
    has both."""
    found: dict[tuple, Tested] = {}
    for own in (e, *e.others):
        for place in own.ours.places:
            rows = [own.rows(place, group, *SHIFTED_ECE) for group in (PROPOSED, OTHERS)]
            if all(rows):
                found.setdefault(place, Tested(own, place, *rows))
    networks = [found[place] for place in papers_or_all(list(found))]
    return sorted(networks, key=lambda network: -len(network.variants + network.others))


def named(e: Evidence, network: Tested) -> str:
    """Return `CIFAR-10 with DenseNet-121`, with the protocol if it is not that of the other answers."""
    own, (dataset, arch) = network.evidence, network.place
    protocol = f" and protocol {protocol_text(own.protocol, {dataset})}" if own.protocol != e.protocol else ""
    return place_name(dataset, arch) + protocol


def described(e: Evidence, network: Tested, lower_than: str) -> str:
    """Describe one network in full: rows, seeds, passes, severities won, and the median ECEs at the highest one."""
    own, place, variants, others = network
    rows, absent = [*variants, *others], [row for row in BASELINES if row not in others]
    hardest = listed([f"{own.ours.values[*place, row, SHIFTED_ECE[-1]].mean:.3f} for {row_text(row)}" for row in rows])
    ours, theirs = (from_to(own.ours.n[*place, row, SHIFTED_ECE[0]] for row in part) for part in (variants, others))
    seeds = f"n = {ours}" + (f"; baselines: n = {theirs}" if theirs != ours else "")
    passes = f"; {from_to(own.corrupted_passes[place], decimals(0))} passes" if place in own.corrupted_passes else ""
    return (
        f"On {named(e, network)}, {len(variants)} of {len(PROPOSED)} variants are measured "
        f"({seeds}{passes}). The best variant's median ECE over 19 corruptions "
        f"is {lower_than}. At severity 5, the median ECE is {hardest}"
        + (f". Not measured there: {', '.join(absent)}" if absent else "")
    )


def in_brief(e: Evidence, network: Tested) -> str:
    """Return the median ECEs at the highest severity, those of the variants first."""
    values, rows = network.evidence.ours.values, [*network.variants, *network.others]
    shown = [f"{row_text(row)} {values[*network.place, row, SHIFTED_ECE[-1]].mean:.3f}" for row in rows]
    seeds = network.evidence.ours.n
    counts = from_to(seeds[*network.place, row, SHIFTED_ECE[-1]] for row in rows)
    return f"median ECE at severity 5 on {named(e, network)} (n = {counts}): {', '.join(shown)}"


def unused(e: Evidence, networks: list[Tested]) -> str:
    """Name the runs on corrupted images that the answer leaves out; empty if there are none."""
    used = {network.place for network in networks}
    places = sorted({cell[:2] for cell in e.incomplete}, key=paper_order)
    lacking = {place: [row for row in (*BASELINES, *PROPOSED) if (*place, row) in e.incomplete] for place in places}
    shown = "; ".join(f"{places_text([place])}: {', '.join(found)}" for place, found in lacking.items() if found)
    text = f". Runs that lack some of the 19 types are not used ({shown})" if shown else ""
    if others := {cell: names for cell, names in e.unused_corrupted.items() if cell[:2] not in used}:
        text += f". Measured, but not used here, with {protocols_and_places(others)}"
    return text


def severities_won(network: Tested) -> dict[str, int]:
    """Return {other row: the number of severities at which the best variant has a lower median ECE}."""
    values, place, rows, others = network.evidence.ours.values, *network[1:]
    ece = {row: [values[*place, row, metric].mean for metric in SHIFTED_ECE] for row in [*rows, *others]}
    best = [min(found) for found in zip(*(ece[row] for row in rows), strict=True)]
    return {other: sum(own < theirs for own, theirs in zip(best, ece[other], strict=True)) for other in others}


def whose(row: str) -> str:
    return f"that of {row_text(row)}" if BLOCK in row else f"{row}'s"


def lower(wins: dict[str, int]) -> str:
    """Return "lower than Single's at all 5 severities; it is at no severity lower than SVI's". Rows with the same
    number share a clause."""
    others = {won: listed([whose(other) for other in wins if wins[other] == won]) for won in wins.values()}
    counts = {5: "all 5 severities"} | {won: f"{won} of 5 severities" for won in range(1, 5)}
    parts = [f"lower than {names} at {counts[won]}" for won, names in others.items() if won]
    never = [f"at no severity lower than {names}" for won, names in others.items() if not won]
    return "; it is ".join([*parts, *never])
