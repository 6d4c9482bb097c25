"""Words of the token view, and of the drawing of mean KL over time."""

WORDS: dict[str, tuple[str, str]] = {
    "chart.heading": ("Mean KL over time", "平均 KL 随时间的变化"),
    "chart.title": ("Mean KL of {task_set} on {target}", "{target} 上 {task_set} 的平均 KL"),
    "chart.log": ("(nats, logarithmic)", "（nat，对数坐标）"),
    "chart.told": (
        "{runs} runs from {first} to {last}: the lowest {lowest}, the highest {highest}, {breaches} of them breaches.",
        "{first} 至 {last} 共 {runs} 次运行：最低 {lowest}，最高 {highest}，其中 {breaches} 次越限。",
    ),
    "chart.limit_told": ("The limit of level {level} is {limit}.", "级别“{level}”的限值为 {limit}。"),
    "chart.good": ("ok or warning", "正常或警告"),
    "chart.breach": ("breach", "越限"),
    "chart.other": ("cannot tell", "无法判定"),
    "chart.subject": ("this run", "本次运行"),
    "chart.action": ("what was done", "已采取的操作"),
    "tokens.title": ("The tokens", "词元"),
    "tokens.lead": (
        "The {shown} prompts that carry the most divergence, of {measured} that were measured, with their mean KL.",
        "所测 {measured} 个提示中对总差异贡献最大的 {shown} 个，附其平均 KL。",
    ),
    "tokens.hint": (
        "Point at a token, or move to it by keyboard, to see what both servers thought likely there.",
        "将指针移到词元上，或用键盘移动到它，即可看到两台服务器在该处认为可能的词元。",
    ),
    "tokens.keys": (
        "Tab goes into the text; left and right go to the next token, up and down to the next one far apart, "
        "Escape closes.",
        "按 Tab 进入文本；左右键移到相邻词元，上下键移到差异大的词元，Esc 关闭。",
    ),
    "tokens.ids_only": (
        "Only ids of tokens are kept. To record what they mean from the next run on, set",
        "仅保存了词元编号。若要从下次运行起记录其文本，请设置",
    ),
    "tokens.ids_unknown": (
        "What these ids mean is not known: the servers are asked for it beside the runs, where they have /detokenize.",
        "尚不知道这些编号的含义：在服务器提供 /detokenize 时，会在运行之余向其询问。",
    ),
    "tokens.off": (
        "Tokens are not shown: the configuration says `expose.prompts: off`. With `ids` they are kept by number, "
        "with `full` in words.",
        "不显示词元：配置为 `expose.prompts: off`。设为 `ids` 时按编号保存，设为 `full` 时按文本保存。",
    ),
    "tokens.none": (
        "No tokens are kept of this run: nothing was measured, newer runs of its kind have taken its place, or the "
        "store could not take them (the log says so). Those of a run that has just ended follow in a moment.",
        "本次运行没有保存词元：没有测得数值，已被同类的较新运行取代，或存储未能写入（日志中有记录）。刚结束的运行，其词元稍后写入。",
    ),
    "tokens.prompt": (
        "{prompt}: {length} tokens of prompt before the text below, {mode}; mean KL {mean}, largest {largest}.",
        "{prompt}：下文之前有 {length} 个提示词元，{mode}；平均 KL {mean}，最大 {largest}。",
    ),
    "tokens.prompt_short": ("mean KL {mean}, largest {largest}", "平均 KL {mean}，最大 {largest}"),
    "tokens.of": ("Golden text of {prompt}", "{prompt} 的黄金文本"),
    "tokens.legend": ("What the colours mean", "颜色含义"),
    "tokens.sample": ("token", "词元"),
    "tokens.nats": ("nats", "奈特"),
    "tokens.broken": ("no usable number", "数值不可用"),
    "tokens.gap": ("{n} positions were not asked", "有 {n} 个位置未询问"),
    "tokens.position": ("position {n}", "位置 {n}"),
    "tokens.token": ("Token", "词元"),
    "tokens.place": ("Position", "位置"),
    "tokens.baseline": ("Baseline", "基线"),
    "tokens.node": ("Node", "节点"),
    "tokens.moved": ("Mass that moved", "转移的概率"),
    "tokens.golden": ("the golden token", "黄金词元"),
    "tokens.elsewhere": ("all others", "其余"),
    "tokens.worst": ("Positions that are farthest apart", "差异最大的位置"),
    "tokens.baseline_first": ("The baseline's first choice", "基线首选"),
    "tokens.node_first": ("The node's first choice", "节点首选"),
    "tokens.golden_share": ("Golden token", "黄金词元的概率"),
}
