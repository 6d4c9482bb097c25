"""What to try next, in Chinese. The English sentences stand in pages/advice.py and are the keys here."""

from collections.abc import Mapping

from quantwatch.pages.manner import Language

CHINESE: Mapping[str, str] = {
    "The baseline is in doubt": "基线存疑",
    "Mend the baseline first: until it is proven, a verdict on a node says little.": (
        "先修复基线：在其得到证实之前，对节点的判定意义不大。"
    ),
    "See what it is and whether it answers.": "查看基线是什么、是否应答。",
    "If it is meant to answer otherwise now, say so.": "如果它现在本应给出不同的回答，请予以确认。",
    "The node computes broken numbers": "节点计算出损坏的数值",
    "Keep users away and start the node anew: NaN spreads to the next users' answers.": (
        "先让用户避开该节点并重启它：NaN 会扩散到后续用户的回答中。"
    ),
    "Check the checkpoint's files: NaN, zero scales, codes out of range.": (
        "检查检查点文件：NaN、为零的缩放因子、超出范围的编码。"
    ),
    "Watch the logits of the same model in your own program: docs/toolkit.md, LogitGuard.": (
        "在自己的程序中监视同一模型的 logits：见 docs/toolkit.md 的 LogitGuard。"
    ),
    "Look at the node's log, its GPU's memory errors, and the kernels that it chose.": (
        "查看节点日志、GPU 显存错误以及所选用的内核。"
    ),
    "The node's free answers are garbage": "节点的自由回答是乱码",
    "Keep users away and start the node anew; a passing /health proves nothing.": (
        "先让用户避开该节点并重启它；/health 通过不能证明任何事情。"
    ),
    "Compare engine version, kernels and flags with a node that is well.": (
        "将引擎版本、内核与启动参数同正常节点对比。"
    ),
    "The tokenizer is another one": "分词器不同",
    "Serve the node with the baseline's tokenizer files and chat template.": ("让节点使用基线的分词器文件和对话模板。"),
    "Hold both servers against each other.": "将两台服务器互相核对。",
    "The engine's version changed": "引擎版本已变更",
    "Roll the node back to the version of the last good run.": "将节点回滚到最近一次正常运行时的版本。",
    "Start the node as it was before, and let it be measured.": "按原来的方式启动节点，并重新测量。",
    "Before the next upgrade let one node pass the release gate.": "下次升级前，先让一个节点通过发布门禁。",
    "The model that is served changed": "所服务的模型已变更",
    "Roll back to the checkpoint of the last good run.": "回滚到最近一次正常运行时的检查点。",
    "One data-parallel rank is worse than the others": "某个数据并行序号比其他的更差",
    "Start that rank anew, or take its GPU out, and look at its memory errors.": (
        "重启该序号，或移除其 GPU，并检查其显存错误。"
    ),
    "Measure again.": "重新测量。",
    "Long prompts are hit, short ones are not": "长提示受影响，短提示不受影响",
    "Suspect the KV cache: start the node with a KV cache in full precision and measure again.": (
        "怀疑 KV 缓存：以全精度 KV 缓存启动节点并重新测量。"
    ),
    "See in the model what a quantized KV cache costs.": "在模型中查看量化 KV 缓存的代价。",
    "Compare rope scaling and the longest context with the baseline's.": ("将 RoPE 缩放和最长上下文与基线对比。"),
    "The answer drifts the longer it gets": "回答越长偏差越大",
    "See how errors grow from layer to layer.": "查看误差如何逐层增长。",
    "Structure breaks first: braces, tags, tool calls": "结构最先出错：括号、标签、工具调用",
    "Compare chat template, tool parser and structured-output settings with the baseline's.": (
        "将对话模板、工具解析器和结构化输出设置与基线对比。"
    ),
    "Quantize with calibration prompts that hold tool calls and JSON.": (
        "使用包含工具调用和 JSON 的校准提示进行量化。"
    ),
    "One language is hit more than the others": "某种语言比其他语言受影响更大",
    "Quantize with calibration prompts in that language.": "使用该语言的校准提示进行量化。",
    "See whether its prompts reach other outlier channels.": "查看该语言的提示是否触及其他离群通道。",
    "It was measured otherwise than before": "测量方式与之前不同",
    "Prompts, k, mode, limits or the baseline differ: do not compare number by number.": (
        "提示、k、模式、限值或基线不同：不要逐项比较数值。"
    ),
    "Measure again before you blame the node.": "先重新测量，再归咎于节点。",
    "The node was started anew in between": "期间节点曾被重启",
    "Compare command line, environment, driver and kernels of both starts.": (
        "对比两次启动的命令行、环境、驱动和内核。"
    ),
    "Compare with the last good run, factor by factor.": "与最近一次正常运行逐项对比。",
    "The node was busy while it was measured": "测量时节点处于繁忙状态",
    "Measure it again when it is idle; what goes away then comes from batching or memory pressure.": (
        "空闲时重新测量；届时消失的偏差来自批处理或显存压力。"
    ),
    "Limit the sequences that it computes at once, and measure again.": "限制同时计算的序列数，并重新测量。",
    "No run before was good": "此前没有正常的运行",
    "Have people read its answers: the limits may be too narrow for this model.": (
        "请人阅读其回答：对该模型而言限值可能过窄。"
    ),
    "If they find them right, set limits of its own.": "如果回答正确，请为其设置专用限值。",
    "Look for outlier channels in the model.": "在模型中查找离群通道。",
    "Where there are some, smooth them and quantize anew.": "如有离群通道，先平滑再重新量化。",
    "The whole distribution moved, in every part": "整个分布在各部分都发生了偏移",
    "Nothing that quantwatch can see has changed": "quantwatch 可见的内容都没有变化",
    "Suspect what it cannot see: GPU, driver, clocks, memory, hours of uptime.": (
        "怀疑其看不到的因素：GPU、驱动、时钟频率、内存、运行时长。"
    ),
    "Start the node anew and measure.": "重启节点并测量。",
    "Move the model to another machine; does the fault move with it?": ("将模型移到另一台机器；故障是否随之转移？"),
    "This run could not tell": "本次运行无法判定",
    "The reason says which measurement is missing; mend that, not the node.": (
        "原因说明了缺少哪项测量；应修复测量，而不是节点。"
    ),
    "Ask what both servers can do.": "询问两台服务器的能力。",
    "The order did not take effect at the gateway": "指令未在网关生效",
    "Ask the gateway what it knows.": "询问网关掌握的状态。",
    "Until it is mended, take the node out at the gateway by hand.": "修复之前，请在网关手动移除该节点。",
    "The action was held back": "操作被制止",
    "The node still serves. Mend what objects, or take it out at the gateway yourself.": (
        "节点仍在服务。请解决反对理由，或自行在网关移除节点。"
    ),
    "Or isolate it by hand, on your own responsibility.": "或者自行承担责任，手动隔离。",
    "The release did not take effect at the gateway": "恢复指令未在网关生效",
    "Until it is mended the node may get no traffic; if it is well, put it back by hand.": (
        "修复之前，节点可能接不到流量；若节点正常，请在网关手动恢复。"
    ),
    "The release was held back": "恢复被制止",
    "The node stays out of traffic. Mend what objects, and it comes back by itself once it is clean.": (
        "节点仍不承接流量。请解决反对理由，节点恢复正常后会自动恢复承接流量。"
    ),
    "Or release it by hand, on your own responsibility.": "或者自行承担责任，手动恢复。",
}


def in_language(language: Language, sentence: str) -> str:
    """A sentence of the advice in a language; English where no other is known."""
    return CHINESE.get(sentence, sentence) if language == "zh" else sentence
