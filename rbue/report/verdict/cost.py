"""The cost of training and of testing."""

from statistics import median

from rbue.report.claims.scopes import DE as ENSEMBLE
from rbue.report.claims.scopes import Q95, SINGLE
from rbue.report.columns import decimals, from_to
from rbue.report.rows import PROPOSED
from rbue.report.verdict.answers import NO, NO_TIMES, YES, Found
from rbue.report.verdict.evidence import Evidence, papers_or_all
from rbue.report.verdict.quality import settings


def training_cost(e: Evidence) -> Found:
    """Compare training times and parameters with those of Single and Deep Ensemble."""
    times = {row: e.ratios("time", row, SINGLE) for row in [*PROPOSED, ENSEMBLE]}
    ours = [ratio for row in PROPOSED for ratio in times[row]]
    parameters = e.ratios("parameters", ENSEMBLE, Q95)
    if not (ours and times[ENSEMBLE]):
        return NO_TIMES
    text = (
        f"Training a variant takes {median(ours):.2f} times as long as training Single (median of {len(ours)} cells "
        f"timed with the same code, range {from_to(ours, decimals(2))}). Deep Ensemble(4) takes "
        f"{median(times[ENSEMBLE]):.2f} times as long"
    )
    if parameters:
        text += f" and stores {median(parameters):.0f} times as many parameters"
    brief = f"{median(ours):.2f} times as long as Single; Deep Ensemble(4): {median(times[ENSEMBLE]):.2f} times"
    return Found(YES if 2 * max(ours) <= median(times[ENSEMBLE]) else NO, text, brief)


def inference_cost(e: Evidence) -> Found:
    """Compare the measured test time with Deep Ensemble's, then what fewer passes and temperature scaling achieve."""
    pairs = [pair for row in PROPOSED for pair in e.cost_pairs("test_ms_per_image", row, ENSEMBLE)]
    known = {p: e.rows(p, PROPOSED, "passes") for p in e.ours.places}
    places = papers_or_all([p for p, rows in known.items() if rows])
    if not (pairs and places):
        return NO_TIMES
    alike = [pair for pair in pairs if pair[0]["uncompiled"] == pair[1]["uncompiled"]]
    ratio = [one["test_ms_per_image"] / two["test_ms_per_image"] for one, two in alike or pairs]
    passes = max(e.ours.values[*p, row, "passes"].mean for p in places for row in known[p])
    text = (
        f"A variant with {passes:.0f} passes takes {median(ratio):.1f} times as long per image as Deep Ensemble(4) "
        f"(median of {len(ratio)} cells, range {from_to(ratio, decimals(1))})"
    )
    brief = f"{passes:.0f} passes take {median(ratio):.1f} times as long as Deep Ensemble(4)"
    if not alike:
        favoured = "Deep Ensemble(4)" if pairs[0][0]["uncompiled"] else "the variants"
        text += (
            f". This favours {favoured}, since only the passes of {favoured} were compiled. If all passes took equally "
            f"long, {passes:.0f} passes would take {passes / 4:.0f} times as long as 4"
        )
        brief += f"; this favours {favoured}, since only these were compiled"
    return Found(YES if median(ratio) <= 1 else NO, text + cheaper(e, passes), brief)


def cheaper(e: Evidence, passes: float) -> str:
    """Say which ECE fewer passes and temperature scaling achieve; empty if it is unknown."""
    single, ours = ([e.mean_cost(row, kind) for kind in ("ece", "tempered_ece")] for row in (SINGLE, Q95))
    if not all((*single, *ours)):
        return ""
    few = e.mean_cost(Q95, "ece_10")
    fewer = f"{few:.3f} with 10 passes and " if few else ""
    return (
        f". On {settings(e.costed)}, the mean ECE of Single is {single[0]:.3f}, that of {Q95} {fewer}{ours[0]:.3f} "
        f"with {passes:.0f} passes. Temperature scaling, which needs labelled images (here the other half of the test "
        f"set), gives Single {single[1]:.3f} and {Q95} {ours[1]:.3f} with {passes:.0f} passes"
    )
