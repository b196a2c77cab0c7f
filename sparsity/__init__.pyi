"""The public names of `sparsity`: type checkers and `__init__.py` read them here."""

from sparsity import claims_ledger as ledger
from sparsity import kernels as kernels
from sparsity.attention import measurement as measurement
from sparsity.attention import monitoring as monitoring
from sparsity.attention import stacks as stacks
from sparsity.attention import streaming as streaming
from sparsity.attention.describe import describe as describe
from sparsity.attention.fused import from_lse as from_lse
from sparsity.attention.fused import fused_rows as fused_rows
from sparsity.attention.largest_logit import largest_logit as largest_logit
from sparsity.attention.largest_logit import qk_clip as qk_clip
from sparsity.attention.measurement import measure as measure
from sparsity.attention.monitoring import monitor as monitor
from sparsity.attention.streaming import stream as stream
from sparsity.attention.torch import models as models
from sparsity.claims_ledger import claims as claims
from sparsity.crosscheck.verify import verify as verify
from sparsity.derivation import derive as derive
from sparsity.design_search import design as design
from sparsity.design_search.search import sink_logit as sink_logit
from sparsity.errors import InputError as InputError
from sparsity.errors import NoClosedForm as NoClosedForm
from sparsity.errors import TooFine as TooFine
from sparsity.exact_law.exact import exact as exact
from sparsity.exact_law.regimes import regime as regime
from sparsity.kernels import Kernel as Kernel
from sparsity.kernels import RowMap as RowMap
from sparsity.kernels import score_kernel as score_kernel
from sparsity.limit.evaluation import evaluate as evaluate
from sparsity.limit.long_rows import needle_capacity as needle_capacity
from sparsity.metric import S as S
from sparsity.metric import entropy as entropy
from sparsity.metric import gini as gini
from sparsity.metric import hoyer as hoyer
from sparsity.metric import n_eff as n_eff
from sparsity.metric import varentropy as varentropy
from sparsity.panel import explore as explore
from sparsity.plots import plot as plot
from sparsity.report import figures as figures
from sparsity.results import Estimate as Estimate
from sparsity.results import Evaluation as Evaluation
from sparsity.results import Exact as Exact
from sparsity.rows.rope_scaling import DynamicNtkScaling as DynamicNtkScaling
from sparsity.rows.rope_scaling import LinearScaling as LinearScaling
from sparsity.rows.rope_scaling import Llama3Scaling as Llama3Scaling
from sparsity.rows.rope_scaling import NtkScaling as NtkScaling
from sparsity.rows.rope_scaling import YarnScaling as YarnScaling
from sparsity.rows.row import Row as Row
from sparsity.rows.score_laws import Empirical as Empirical
from sparsity.rows.score_laws import Mixture as Mixture
from sparsity.rows.score_laws import StudentT as StudentT
from sparsity.rows.score_laws import Uniform as Uniform
from sparsity.rows.steps.bounded import QKNorm as QKNorm
from sparsity.rows.steps.bounded import SoftCap as SoftCap
from sparsity.rows.steps.distance import Alibi as Alibi
from sparsity.rows.steps.distance import Chunk as Chunk
from sparsity.rows.steps.distance import Decay as Decay
from sparsity.rows.steps.distance import Window as Window
from sparsity.rows.steps.marked import Gate as Gate
from sparsity.rows.steps.marked import Needle as Needle
from sparsity.rows.steps.marked import NeedleAbove as NeedleAbove
from sparsity.rows.steps.marked import Sink as Sink
from sparsity.rows.steps.marked import SinkLogit as SinkLogit
from sparsity.rows.steps.rope_and_coca import Coca as Coca
from sparsity.rows.steps.rope_and_coca import Rope as Rope
from sparsity.rows.steps.temperature import FloorLog as FloorLog
from sparsity.rows.steps.temperature import LengthBias as LengthBias
from sparsity.rows.steps.temperature import LogLength as LogLength
from sparsity.rows.steps.temperature import LongRope as LongRope
from sparsity.rows.steps.temperature import ScalableSoftmax as ScalableSoftmax
from sparsity.rows.steps.temperature import ScaleInvariant as ScaleInvariant
from sparsity.rows.steps.temperature import Temperature as Temperature
from sparsity.rows.steps.temperature import Yarn as Yarn
from sparsity.sampling import estimate as estimate
from sparsity.sweeps.curves import sweep as sweep

__version__: str

__all__ = [
    "Alibi",
    "Chunk",
    "Coca",
    "Decay",
    "DynamicNtkScaling",
    "Empirical",
    "Estimate",
    "Evaluation",
    "Exact",
    "FloorLog",
    "Gate",
    "InputError",
    "Kernel",
    "LengthBias",
    "LinearScaling",
    "Llama3Scaling",
    "LogLength",
    "LongRope",
    "Mixture",
    "Needle",
    "NeedleAbove",
    "NoClosedForm",
    "NtkScaling",
    "QKNorm",
    "Rope",
    "Row",
    "RowMap",
    "S",
    "ScalableSoftmax",
    "ScaleInvariant",
    "Sink",
    "SinkLogit",
    "SoftCap",
    "StudentT",
    "Temperature",
    "TooFine",
    "Uniform",
    "Window",
    "Yarn",
    "YarnScaling",
    "claims",
    "derive",
    "describe",
    "design",
    "entropy",
    "estimate",
    "evaluate",
    "exact",
    "explore",
    "figures",
    "from_lse",
    "fused_rows",
    "gini",
    "hoyer",
    "kernels",
    "largest_logit",
    "ledger",
    "measure",
    "measurement",
    "models",
    "monitor",
    "monitoring",
    "n_eff",
    "needle_capacity",
    "plot",
    "qk_clip",
    "regime",
    "score_kernel",
    "sink_logit",
    "stacks",
    "stream",
    "streaming",
    "sweep",
    "varentropy",
    "verify",
]
