"""The rows and the (dataset, network) pairs that the claims are about."""

from itertools import product

from rbue.report.claims.numbers import SEVERITIES
from rbue.report.rows import ARCHS, DATASETS, LABELS

SINGLE, P2, P5, DE, SVI, RRELU, Q8, Q85, Q9, Q95 = LABELS
DROPOUT, DROPRELU = [P2, P5], [Q8, Q85, Q9, Q95]
BASELINES = [SINGLE, P2, P5, SVI]  # all but Deep Ensemble
VARIED = [DE, Q8, SVI, Q95, RRELU, P5, P2]  # the rows of Tables 4 and 5
ALL_LAYERS, LAST, FIRST = f"{Q8}@all", f"{Q8}@last", f"{Q8}@first"

EVERYWHERE = list(product(DATASETS, ARCHS))
CIFAR = [place for place in EVERYWHERE if place[0] != "tinyimagenet"]
TINY = [place for place in EVERYWHERE if place[0] == "tinyimagenet"]
C10, C10_DENSE, TINY_DENSE = ("cifar10", "resnet18"), ("cifar10", "densenet121"), ("tinyimagenet", "densenet121")
SHIFTED = [RRELU, Q95]  # Figure 5 does not state q; 0.95 is this network's bold row in Table 1
QUALITY, DIVERSE = ("accuracy", "ece"), ("mean_jsd", "mean_dis")
SHIFTED_ECE = [f"ece@{severity}" for severity in SEVERITIES]
SHIFTED_SCORES = [f"{metric}@{severity}" for severity in SEVERITIES for metric in QUALITY]
