"""The ledger's entries as cards: dicts of plain strings."""

from rbue.report import claims

PAPERS = {"supported": "holds", "partly": "partly", "refuted": "does not hold", "undecided": "undecided"}
OURS = {"supported": "reproduced", "partly": "partly", "refuted": "not reproduced", "undecided": "unclear"}


def cards(ledger):
    """Return one dict of plain strings per claim."""
    return [
        {
            "id": entry.id,
            "claim": entry.claim["claim"],
            "quote": entry.claim.get("quote"),
            "where": entry.claim["where"],
            "paper": shown(entry.paper, PAPERS),
            "ours": [{"protocol": p} | shown(verdict, OURS) for p, verdict in entry.ours.items()],
        }
        for entry in ledger
    ]


def shown(verdict, names):
    untested = verdict.elsewhere or (verdict.missing and not verdict.evidence)
    word = "not tested" if untested and names is OURS else names.get(verdict.status, verdict.status)
    return {"verdict": word, "why": "", "numbers": claims.text.verdict_text(verdict)}
