"""The claims as cards: the paper's sentence, the verdict on its own numbers and on ours, and why."""

from rbue.report import verdict
from rbue.report.claims import text
from rbue.report.columns import words
from rbue.report.page.markup import slug, table

KINDS = {  # verdict → the class that colours it
    "holds": "good",
    "reproduced": "good",
    "partly": "fair",
    "does not hold": "bad",
    "not reproduced": "bad",
}
ANSWERS = {  # answer of a finding → the class that colours it
    verdict.YES: "good",
    verdict.PARTLY: "fair",
    **dict.fromkeys(verdict.IN_ONE, "fair"),
    verdict.NO: "bad",
}


def opening(findings):
    """Return the verdict that opens the page: each answer, its numbers, its details, and the claims behind it."""
    return [
        {
            "claim": finding.claim,
            "answer": finding.answer,
            "kind": ANSWERS.get(finding.answer, "open"),
            "numbers": f"{finding.numbers}.",
            "sentence": f"{finding.sentence}." if finding.brief else "",
            "claims": [(name, f"#{slug('claim', name)}") for name in finding.ids],
        }
        for finding in findings
    ]


def placed(card):
    """Add what the template needs: the card's address, its verdicts as tags to filter by, its best-known verdict."""
    tags = [slug("paper", card["paper"]["verdict"]), *(slug("ours", each["verdict"]) for each in card["ours"])]
    first = next((each for each in card["ours"] if each["verdict"] not in ("not tested", "unclear")), None)
    return card | {"address": slug("claim", card["id"]), "tags": " ".join(dict.fromkeys(tags)), "first": first}


def choices(suite):
    """Return {value: name} of the verdicts that occur."""
    ours = [verdict.status for entry in suite.ledger for verdict in entry.ours.values()]
    found = {slug("ours", status): f"ours: {status}" for status in ours}
    papers = [entry.paper.status for entry in suite.ledger]
    return found | {slug("paper", status): f"paper's own numbers: {status}" for status in papers}


def section(suite):
    counted = [{"what": what, "count": count} for what, count in text.counts(suite.ledger)]
    columns = [words("what", "Judged on"), words("count", "Verdicts")]
    return {
        "cards": [placed(card) for card in text.cards(suite.ledger)],
        "counts": table(columns, counted, "Number of claims per verdict", "claims-counts", wide=True),
        "warnings": list(text.short_training(suite.ledger)),
        "reading": reading(),
        "kinds": KINDS,
    }


def reading():
    """Return how a verdict is made, as one text per point."""
    points = text.INTRO.split("\n\n")[1]
    return [" ".join(point.split()) for point in points.removeprefix("- ").split("\n- ")]
