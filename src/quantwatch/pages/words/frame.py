"""Words of the frame around every page, and of pages that tell of trouble."""

WORDS: dict[str, tuple[str, str]] = {
    "frame.skip": ("Skip to the content", "跳到正文"),
    "frame.pages": ("Pages", "页面"),
    "frame.fleet": ("Fleet", "集群"),
    "frame.sets": ("Golden sets", "黄金提示集"),
    "frame.actions": ("Actions", "操作"),
    "frame.settings": ("Language and colours", "语言与配色"),
    "frame.language": ("Language", "语言"),
    "frame.theme": ("Colours", "配色"),
    "frame.theme.auto": ("Auto", "自动"),
    "frame.theme.light": ("Light", "浅色"),
    "frame.theme.dark": ("Dark", "深色"),
    "frame.running": ("quantwatch {version}, running since", "quantwatch {version}，启动于"),
    "frame.utc": ("All times are UTC.", "所有时间均为 UTC。"),
    "frame.english": (
        "The daemon's own sentences are in English, as it wrote them.",
        "守护进程写下的句子保留英文原文。",
    ),
    "frame.cut": (
        "No connection to quantwatch. What you see is old; the page keeps trying.",
        "与 quantwatch 的连接已断开。当前内容已过时，页面会继续重试。",
    ),
    "frame.ago": ("{span} ago", "{span}前"),
    "frame.ahead": ("in {span}", "{span}后"),
    "frame.starting": (
        "quantwatch is starting: it is still reading what it has recorded.",
        "quantwatch 正在启动：仍在读取已有记录。",
    ),
    "frame.store_trouble": ("The store cannot be written: {reason}", "无法写入存储：{reason}"),
    "frame.reload_failed": (
        "The configuration on disk cannot be used. An earlier one runs, taken over at",
        "磁盘上的配置无法使用，仍在运行较早的配置，其生效时间为",
    ),
    "list.rows": ("{first} to {last} of {all}", "第 {first} 至 {last} 项，共 {all} 项"),
    "list.previous": ("Previous", "上一页"),
    "list.next": ("Next", "下一页"),
    "trouble.404.title": ("There is nothing here", "此处没有内容"),
    "trouble.404.text": (
        "The address names nothing that quantwatch knows. It may have left the configuration, or the record.",
        "此地址不对应 quantwatch 已知的任何对象。它可能已从配置或记录中移除。",
    ),
    "trouble.400.title": ("This cannot be answered", "无法处理此请求"),
    "trouble.503.title": ("The record cannot be read", "无法读取记录"),
    "trouble.503.text": (
        "Watching goes on, and the fleet page still shows where every node stands. The runbook says what to do "
        "about the store.",
        "监控仍在继续，集群页面依然显示每个节点的状态。如何处理存储问题请参阅运维手册。",
    ),
    "trouble.500.title": ("quantwatch is in trouble itself", "quantwatch 自身出现故障"),
    "trouble.500.text": (
        "This page could not be made. The daemon's log says more; watching does not depend on this page.",
        "无法生成此页面。守护进程的日志中有更多信息；监控不依赖于此页面。",
    ),
    "trouble.back": ("To the fleet", "返回集群"),
}
