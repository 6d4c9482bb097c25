"""Every series of the product: its name, its help text, its labels. Names stand here and nowhere else.

The prefix is added when a page is made. Values are in base units: seconds, nats, ratios from 0 to 1. A node is always
called `target`: `node`, `endpoint` and `instance` belong to Prometheus and its operator.
"""

from dataclasses import dataclass

PREFIX = "quantwatch_"

LONGEST_LABEL = 200
"""Names in the configuration have at most 80 characters; model names come from servers, who may send anything."""

UNITS = ("seconds", "nats", "ratio")

TARGET = ("target",)
SET = ("target", "task_set")
POOL = ("pool",)


@dataclass(frozen=True, slots=True)
class Series:
    """One family: its name without the prefix, its help text, its labels in the order in which values are given."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """The unit that the name ends with; empty where it has none."""
        last = self.name.rpartition("_")[2]
        return last if last in UNITS else ""


def label(value: str) -> str:
    """A label's value that any page can carry: UTF-8, printable, not too long."""
    text = (
        value
        if value.isprintable()
        else "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value)
    )
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 3] + "..."


# Who is who
BUILD = Series("build_info", "The version of quantwatch and of Python.", ("version", "python"))
TARGET_INFO = Series(
    "target_info",
    "What is known of a target, to be joined with its other series.",
    ("target", "pool", "scheme", "model", "engine_version", "gateway_name"),
)
BASELINE_INFO = Series("baseline_info", "What the baseline says it is.", ("baseline", "model", "engine_version"))
TASK_SET_INFO = Series(
    "task_set_info",
    "How a task set is asked: digest and number of its prompts, prompts a run draws, log-probabilities a position.",
    ("task_set", "digest", "prompts", "draw", "top_k", "mode"),
)

# The numbers of the last run that gave any
_LAST = " Of the last run that gave numbers."
KL_MEAN = Series("kl_divergence_mean_nats", "Mean KL(baseline || target), a lower bound." + _LAST, SET)
KL_P99 = Series("kl_divergence_p99_nats", "99th percentile of KL(baseline || target) over positions." + _LAST, SET)
KL_MAX = Series("kl_divergence_max_nats", "Largest KL(baseline || target) at one position." + _LAST, SET)
PERPLEXITY_RATIO = Series("perplexity_ratio", "Perplexity of the target over that of the baseline." + _LAST, SET)
PERPLEXITY = Series("perplexity", "Perplexity on the golden continuations." + _LAST, (*SET, "role"))
TOP1 = Series("top1_agreement_ratio", "Share of positions with the same most probable token." + _LAST, SET)
OUTSIDE = Series("outside_topk_mass_ratio", "Mean probability outside the listed tokens." + _LAST, (*SET, "role"))
COVERAGE = Series("coverage_ratio", "Mean baseline probability on tokens that both sides list." + _LAST, SET)
TOPK_OVERLAP = Series("topk_overlap_ratio", "Mean share of the top k that both sides list." + _LAST, SET)
LOGPROB_DELTA = Series(
    "mean_log_likelihood_delta_nats", "Mean log-probability of the golden tokens, target minus baseline." + _LAST, SET
)
ENTROPY = Series("entropy_nats", "Mean entropy of the listed tokens, a lower bound." + _LAST, (*SET, "role"))
KL_LOW = Series("kl_divergence_mean_low_nats", "Lower end of the interval of the mean KL divergence." + _LAST, SET)
KL_HIGH = Series("kl_divergence_mean_high_nats", "Upper end of the interval of the mean KL divergence." + _LAST, SET)
RATIO_LOW = Series("perplexity_low_ratio", "Lower end of the interval of the perplexity ratio." + _LAST, SET)
RATIO_HIGH = Series("perplexity_high_ratio", "Upper end of the interval of the perplexity ratio." + _LAST, SET)
CORRUPTED = Series("corrupted_positions", "Positions with broken numbers." + _LAST, SET)
PROBE_SECONDS = Series("probe_mean_duration_seconds", "Mean time of one probe." + _LAST, (*SET, "role"))
TOKENS = Series("tokens_compared", "Positions compared." + _LAST, SET)
PROMPTS = Series("prompts_compared", "Different prompts compared." + _LAST, SET)

# Limits, so that rules need no copies of them; level is warn or critical
_LIMIT = (*SET, "level")
KL_MEAN_LIMIT = Series("kl_divergence_mean_threshold_nats", "Limit of the mean KL divergence.", _LIMIT)
KL_P99_LIMIT = Series("kl_divergence_p99_threshold_nats", "Limit of the 99th percentile of the KL divergence.", _LIMIT)
PERPLEXITY_LIMIT = Series("perplexity_threshold_ratio", "Limit of the perplexity ratio.", _LIMIT)
TOP1_LIMIT = Series("top1_agreement_threshold_ratio", "Lower limit of the top-1 agreement.", _LIMIT)

# Runs, as they stand
SUCCESS = Series("probe_success", "Whether the last run gave a usable verdict; absent before the first run.", SET)
LAST_RUN = Series("last_run_timestamp_seconds", "When the last run ended.", SET)
LAST_SUCCESS = Series("last_success_timestamp_seconds", "When the last run that gave numbers ended.", SET)
PERIOD = Series("run_period_seconds", "Longest time between two runs by the schedule.", SET)
FRESH = Series("fresh", "Whether the verdict is recent enough to count.", SET)

# The latest handshake
HANDSHAKE_OK = Series(
    "handshake_ok", "Whether target and baseline were found comparable; absent when that is not known.", TARGET
)
HANDSHAKE_CHECK_OK = Series(
    "handshake_check_ok",
    "Whether one check of the latest handshake was passed; absent when that is not known.",
    ("target", "check"),
)

# Decisions, as they stand
VERDICT = Series("verdict", "1 for the verdict that counts, after confirmation; 0 for the others.", (*SET, "verdict"))
VERDICT_SINCE = Series(
    "verdict_since_timestamp_seconds", "When the verdict became what it is; absent where it never changed.", SET
)
QUALITY = Series(
    "target_quality", "1 for the worst fresh verdict of a target; 0 for the others.", ("target", "quality")
)
ROUTING = Series("target_routing", "1 for where a target is routed; 0 for the others.", ("target", "routing"))
HUMAN = Series("target_human", "1 for what a person said about a target; 0 for the others.", ("target", "human"))
HUMAN_UNTIL = Series("target_human_until_timestamp_seconds", "When a person's word about a target ends.", TARGET)
LEFT = Series("target_left", "Whether a target has left the configuration and is kept for its isolation.", TARGET)
BREACHES = Series("consecutive_breaches", "Runs in a row that breached a limit.", SET)
CLEAN = Series("consecutive_clean", "Runs in a row that were clean.", SET)
UNDECIDED = Series("consecutive_undecided", "Runs in a row that could not tell.", SET)
ISOLATED_SINCE = Series("isolated_since_timestamp_seconds", "When a target that is out of traffic left it.", TARGET)
ISOLATION_VERIFIED = Series(
    "isolation_verified", "Whether the gateway showed that our isolation of a target took effect.", TARGET
)
EJECTIONS = Series("ejections", "Isolations of a target that count for its hold and are not forgiven.", TARGET)
HOLD_UNTIL = Series("hold_until_timestamp_seconds", "Before when an isolated target does not come back.", TARGET)
PROBATION = Series("target_probation", "Whether a target has come back lately and is on probation.", TARGET)
POOL_TARGETS = Series("pool_targets", "Targets of a pool.", POOL)
POOL_ISOLATED = Series("pool_isolated_targets", "Isolated targets of a pool.", POOL)
POOL_MISSING = Series(
    "pool_missing_targets",
    "Targets in traffic on record that get none by the gateway's own list; absent where it tells nobody.",
    POOL,
)
POOL_ALLOWED = Series("pool_max_isolated_targets", "How many targets of a pool may be isolated at once.", POOL)
POOL_RUNG = Series("pool_rung", "1 for the rung that a ladder's traffic is on; 0 for others.", ("pool", "rung"))
WEIGHT = Series("target_weight_ratio", "Share of its own weight that a target has at the gateway.", TARGET)
COUNTED = Series(
    "target_broken_numbers",
    "What a node has counted of its own broken numbers since it started; absent where it counts nothing.",
    ("target", "counted"),
)
STORM = Series("storm_active", "Whether so many targets of a pool breach at once that nothing acts.", POOL)
POOL_STATE = Series("pool_state", "1 for where a pool stands as a whole; 0 for the others.", ("pool", "state"))
APPROVALS = Series("open_approvals", "Proposals of a pool that wait for a person.", POOL)
MODE = Series("mode", "1 for how far quantwatch may go with a pool; 0 for the others.", ("pool", "mode"))
PAUSED = Series(
    "paused", "Whether actions are paused for a scope (all, pool:NAME, target:NAME, or rollout: before it).", ("scope",)
)
PAUSE_REVIEW = Series(
    "pause_review_timestamp_seconds", "When the next pause of a scope ends, or somebody should look at it.", ("scope",)
)

# The yardstick
BASELINE_UP = Series("baseline_up", "0 while the baseline is in trouble and nothing can be measured against it.")
BASELINE_SOUND = Series("baseline_sound", "Whether the baseline still gives its stored answers; absent when unknown.")
BASELINE_CHECKED = Series("baseline_checked_timestamp_seconds", "When the baseline was last held against itself.")
BASELINE_DRIFT = Series("baseline_drift_nats", "KL divergence of the baseline from its own stored answers.")

BASELINE_REACHABLE = Series(
    "baseline_reachable", "Whether the baseline answered the latest self-check of its references; absent without one."
)
REFERENCE_STATE = Series(
    "reference_state",
    "1 for where the baseline's answers to a task set come from, or why there are none; 0 for the others.",
    ("task_set", "state"),
)
REFERENCE_MADE = Series(
    "reference_made_timestamp_seconds", "When the baseline's answers to a task set were enrolled.", ("task_set",)
)
REFERENCE_CHECKED = Series(
    "reference_checked_timestamp_seconds", "When the baseline was last held against a reference.", ("task_set",)
)
REFERENCE_DRIFT = Series(
    "reference_drift_nats", "KL divergence of the baseline from a reference, as found then.", ("task_set",)
)

# quantwatch itself
READY = Series("ready", "Whether configuration, restored state and store are there.")
STARTED = Series("start_time_seconds", "When the daemon started.")
RELOAD_OK = Series("config_last_reload_successful", "Whether the configuration on disk is the one that runs.")
RELOADED = Series("config_last_reload_success_timestamp_seconds", "When the running configuration was loaded.")
STORE_UP = Series("store_up", "Whether the store can be written; nothing acts until it can.")
UNWRITTEN = Series("store_unwritten_runs", "Runs that wait for the store.")
INTENTS = Series("open_intents", "Orders to the gateway that are not settled yet.")
GATEWAY_UP = Series("gateway_up", "Whether the last call to the gateway worked.")
RECENT_LAG = Series("event_loop_recent_lag_seconds", "How late the event loop was, at worst lately.")
NOTICES_WAITING = Series("notifications_waiting", "Notices that a channel has yet to be told.", ("channel",))
QUEUE = Series("worker_queue_length", "Task sets of a target that are due and wait.", TARGET)
BUSY = Series("worker_busy", "Whether a run of a target is under way.", TARGET)

# Counters
RUNS = Series("runs_total", "Runs that ended, with any result.", SET)
RUN_FAILURES = Series("run_failures_total", "Runs that ended without a usable verdict.", (*SET, "reason"))
RUNS_SKIPPED = Series("runs_skipped_total", "Runs that were due and not made.", (*SET, "reason"))
LIMIT_BREACHES = Series(
    "threshold_breaches_total",
    "Runs whose own verdict was warn (level warn), or degraded or corrupted (critical), confirmed or not.",
    (*SET, "level"),
)
POSITIONS = Series("positions_compared_total", "Positions compared, over all runs.", SET)
PROMPTS_DRAWN = Series("prompts_drawn_total", "Prompts drawn, over all runs; one drawn twice counts twice.", SET)
PROMPTS_MISSING = Series("prompts_missing_total", "Drawn prompts that could not be compared.", SET)
SUPPRESSED = Series("actions_suppressed_total", "Wishes to act that something objected to.", ("pool", "reason"))
DECISIONS = Series("decisions_total", "Decisions about targets.", ("pool", "action", "ruling"))
PROPOSALS = Series("proposals_closed_total", "Proposals that no longer wait for a person.", ("pool", "action", "fate"))
TRANSITIONS = Series("state_transitions_total", "Changes of state of targets and pools.", ("target", "axis", "to"))
GATEWAY_CALLS = Series("gateway_requests_total", "Calls to the gateway.", ("driver", "action"))
GATEWAY_FAILURES = Series(
    "gateway_request_failures_total", "Calls to the gateway that failed.", ("driver", "action", "reason")
)
ORDERS = Series("orders_settled_total", "Orders to the gateway by how they ended.", ("driver", "action", "result"))
UPSTREAM_CALLS = Series("upstream_requests_total", "Requests to targets and baseline.", ("role", "target"))
UPSTREAM_FAILURES = Series(
    "upstream_request_failures_total", "Requests to targets and baseline that failed.", ("role", "target", "reason")
)
PROBE_TOKENS = Series(
    "probe_tokens_total", "Tokens of probes: prompts as they are sent, and tokens asked for.", ("role", "target")
)
PROBE_RESTARTS = Series(
    "probe_restarts_total", "Restarts of targets and baseline while they were probed.", ("role", "target")
)
NOTICES = Series("notifications_total", "Notices that a channel has taken.", ("channel",))
NOTICE_FAILURES = Series(
    "notification_failures_total", "Notices that a channel was never told: given up, or too many waited.", ("channel",)
)
ADMIN_CALLS = Series("admin_calls_total", "Calls to the admin listener that change something.", ("call", "role"))
ADMIN_REFUSED = Series("admin_calls_refused_total", "Requests that the admin listener refused, by why.", ("reason",))
OWN_PAUSES = Series("own_pauses_total", "Pauses that quantwatch made itself, by what led to them.", ("reason",))
STORE_ERRORS = Series("store_errors_total", "Reads and writes of the store that failed.")
RUNS_LOST = Series("store_lost_runs_total", "Runs never written, since too many waited for the store.")
TOKENS_LOST = Series("store_lost_tokens_total", "Runs whose tokens were given up, while the run itself may be kept.")
CLOCK_JUMPS = Series("clock_jumps_total", "Times the wall clock jumped.")
JOBS_MISSED = Series("jobs_missed_total", "Ticks of the schedule that started nothing.", ("reason",))
VERDICTS_ASKED = Series("verdict_requests_total", "Questions to /verdict about a known target.", TARGET)
VERDICTS_UNKNOWN = Series("verdict_unknown_requests_total", "Questions to /verdict about no known target.")

# Histograms
TOKEN_KL = Series(
    "token_kl_divergence_nats", "KL(baseline || target) at single positions, a lower bound, over all runs.", SET
)
RUN_DELAY = Series("run_start_delay_seconds", "How long runs that were due waited for their start.")
RUN_SECONDS = Series("run_duration_seconds", "How long runs took.", ("task_set",))
GATEWAY_SECONDS = Series(
    "gateway_request_duration_seconds", "How long calls to the gateway took.", ("driver", "action")
)
UPSTREAM_SECONDS = Series("upstream_request_duration_seconds", "How long requests took.", ("role",))
LAG_SECONDS = Series("event_loop_lag_seconds", "How late the event loop was.")
