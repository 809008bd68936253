"""The sentences of ``insight`` in Chinese: the same codes and slots as in the English table, ``insight/sentences.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from cronsensus.dashboard.catalogue import CHINESE
from cronsensus.dashboard.chinese_schedules import schedule_in_chinese
from cronsensus.insight.sentences import Because, Clause, Code, Language, Text
from cronsensus.insight.time_words import brief_duration
from cronsensus.model.states import Reason, State
from cronsensus.triggers.base import Trigger

SENTENCES: Mapping[Code, str] = MappingProxyType(
    {
        Text.SUCCEEDED: "是：它已运行并成功，运行 {run}。",
        Text.FAILED: "它运行了但失败，运行 {run}：{why}。",
        Text.CLAIMED: "它已被领取，运行 {run}，节点 {node}：正在那里等待空闲槽位。",
        Text.RUNNING_FOR: "它正在运行：运行 {run}，节点 {node}，已运行 {time}。",
        Text.RUNNING: "它正在运行：运行 {run}，节点 {node}。",
        Text.OVER_TIME: "已超过其超时 {limit}（timeout: still working）：线程无法停止，函数返回前它一直占位，之后才判为失败或重试；executor='process' 会在超时时终止。",
        Text.PENDING: "它在等待，运行 {run}。",
        Text.CANCELLED: "它已被取消：{why}。",
        Text.SKIPPED_ITSELF: "任务自行跳过：{detail}。",
        Text.NOT_IN_TIME: "否：它未能及时开始（{reason}）。",
        Text.NAMED_TOO_LATE: "否：{keeper} 在 {time} 才提出它，晚了 {delay}，已经太迟。",
        Text.NAMED_BESIDE_OTHERS: "否：{keeper} 提出它时，同时进行的运行已达上限：{most}。",
        Text.WAITED_FOR_EXECUTOR: "否：它及时抢到，但等待执行器过久：{detail}。",
        Text.MADE_BY_OPERATOR: "它由操作者创建（{origin}），运行 {run}。",
        Text.STARTED_LATE: "它在计划时间之后 {delay} 才开始。",
        Text.SEE_ERROR: "查看错误：cronsensus runs show {run}；重新运行：cronsensus runs retry {run}。",
        Text.NO_TAKEOVER: "不再由其他节点尝试（on_crash=fail）。",
        Text.CRASHED_TOO_OFTEN: "崩溃 {crashes:,} 次后，不再由其他节点尝试（max_crashes={most}）。",
        Text.TRIED_AGAIN: "运行 {run} 已重新运行，即运行 {again}（{state}）。",
        Text.BACKFILLED: "它已补跑，即运行 {run}（{state}）。",
        Text.DUE_AND: "它到期于 {time}，而且{why}。",
        Text.GIVEN_UP: "它在 {time} 被放弃。",
        Text.ATTEMPT_RUNS: "第 {attempt} 次尝试，节点 {node}，始于 {start}，已运行 {took}。",
        Text.ATTEMPT_SUCCEEDED: "第 {attempt} 次尝试，节点 {node}，始于 {start}，{took} 后成功。",
        Text.ATTEMPT_CRASHED: "第 {attempt} 次尝试，节点 {node}，始于 {start}，{took} 后随节点终止：运行已被接管（{why}）。",
        Text.ATTEMPT_RELEASED: "第 {attempt} 次尝试，节点 {node}，始于 {start}，{took} 后因节点排空而交还。",
        Text.ATTEMPT_SNOOZED: "第 {attempt} 次尝试，节点 {node}，始于 {start}，查看了 {took}，正在等待（{why}）。",
        Text.ATTEMPT_RETRIED: "第 {attempt} 次尝试，节点 {node}，始于 {start}，{took} 后失败（{why}），将重试。",
        Text.ATTEMPT_ENDED: "第 {attempt} 次尝试，节点 {node}，始于 {start}，{took} 后{end}。",
        Text.ATTEMPT_ENDED_WHY: "第 {attempt} 次尝试，节点 {node}，始于 {start}，{took} 后{end}：{why}。",
        Text.NO: "否：{why}。",
        Text.NO_STATE: "否：{state}，{why}。",
        Text.NO_PAUSED: "否：任务被暂停：{pause}。",
        Text.NO_OVERLAP: "否：决定这一次时，运行 {run} 尚未结束，而 overlap={overlap}。",
        Text.NO_OVERLAP_FOR: "否：决定这一次时，运行 {run}（{time}）尚未结束，而 overlap={overlap}。",
        Text.NO_RETIRED: "否：任务在运行前已下线。",
        Text.FOUND_LATE: "否：它在 {time} 才被发现，晚了 {delay}，而且{why}。",
        Text.FOUND_LATE_TOGETHER: "否：它在 {time} 才被发现，晚了 {delay}，同时还有 {others:,} 个，而且{why}。",
        Text.KEPT_TIME: "最后一个是 {time}。",
        Text.UPSTREAM_FAILED: "否：它排在 {jobs} 之后，而后者失败或被取消。",
        Text.UPSTREAM_SUCCEEDED: "否：仅当 {jobs} 失败时它才运行，而后者没有失败。",
        Text.UPSTREAM_SKIPPED: "否：它排在 {jobs} 之后，而后者被跳过。",
        Text.UPSTREAM_MISSING: "否：它排在 {jobs} 之后，而后者在该时间没有运行。",
        Text.UPSTREAM_PRUNED: "否：它排在 {jobs} 之后，而后者的记录已被清理，结果无从得知。",
        Text.UPSTREAM_LATE: "否：它排在 {jobs} 之后，而后者未能及时结束（wait_for）。",
        Text.SEE_WHY: "查看原因：{command}。",
        Text.SEE_RUN: "查看：{command}。",
        Text.UPSTREAM_SUCCEEDED_SINCE: "它后来已成功；运行这一次及其下游：{command}。",
        Text.RUN_UPSTREAM_AGAIN: "重新运行它，并在其后运行这一次：{command}。",
        Text.TO_COME: "尚未：它在未来，{when}。",
        Text.TO_COME_PAUSED: "任务已暂停：{paused}。若届时未恢复，将被跳过。",
        Text.NO_VERDICT: "账本中没有它的结论，尽管已作决定。这不应发生：cronsensus audit。",
        Text.PAUSED_NOW: "否：任务已暂停：{paused}。恢复后账本会记录。",
        Text.NOT_FIRED: "尚未：它到期于 {when}，还没有节点触发它。",
        Text.NODES_WILL_LOOK: "有节点在线：它们马上会查看。",
        Text.PRUNED: "已无从得知：账本已清理到 {time}。",
        Text.KEPT_FOR: "运行记录保留 {keep}（keep）。",
        Text.NEAREST: "最近的是 {time}。",
        Text.NEAREST_TWO: "最近的是 {before} 和 {after}。",
        Text.BECAME_OF: "{time} 的结果：",
        Text.WAS_RETIRED: "否：{job} 已于 {time} 下线。",
        Text.NOT_NAMED: "否：它的时间由 {keeper} 管理，没有进程提出过这一时间。",
        Text.NO_TRIGGER: "否：{job} 没有触发器，只按需运行。",
        Text.DECLARED_LATER: "否：{job} 于 {time} 首次声明，任务只在此后触发。",
        Text.BACKFILL: "若要为更早的时间运行：{command}。",
        Text.NOT_NOMINAL: "否：{time} 不是 {job} 的计划时间（{schedule}）。",
        Text.STANDS_STILL: "{standstill}。",
        Text.REWIND: "把它移回现在：{command}。",
        Text.NO_NODE_ON_RECORD: "没有节点的记录（已结束的保留一天）；请启动一个：cronsensus run MODULE:ATTR。",
        Text.NO_NODE_THEN: "当时没有节点在线：{event}。",
        Text.NO_NODE_BETWEEN: "当时没有节点在线：{ended}；{came}。",
        Text.WAITS_FOR_CALL: "它{was}，可由防重函数的下一次调用执行；若没有调用，将按时关闭。",
        Text.LEFT_BY_KEEPER: "{keeper} 把它留待稍后运行：{reason}。",
        Text.WAITS_FOR_KEEPER: "它被中断，{keeper} 会在下一个查看的进程中重新运行它；若有进程在线，只需数秒。",
        Text.NEVER_DUE: "它永不到期；请取消它，或指定时间重新入队。",
        Text.LOOKS_AGAIN: "将在 {when}再次查看：{reason}。",
        Text.DUE: "它将在 {when}到期。",
        Text.DUE_AFTER_FAILURES: "它将在 {when}到期，此前失败 {failures:,} 次。",
        Text.NOT_DECLARED: "在线的发布版本都没有声明任务 {job}，它在 {when}已下线。",
        Text.KEPT_UNTIL: "等待的运行保留到 {time}，以备再次声明，之后取消。",
        Text.PARKED: "它已停放，等待被唤醒：{what}。",
        Text.COMES_AFTER_NOTHING: "它不再排在任何任务之后，节点下次查看时就会继续。",
        Text.COMES_AFTER: "它排在 {jobs} 之后，正在等待。",
        Text.COMES_AFTER_AND_WAITS_FOR: "它排在 {jobs} 之后，正在等待 {open}。",
        Text.WAITS_FOR_ITEMS: "这是一个含 {total:,} 项的批次，正等待其中 {open:,} 项：{running:,} 项运行中，{pending:,} 项等待中。",
        Text.NO_NODE: "没有节点在线：用 cronsensus run MODULE:ATTR 启动一个。",
        Text.NODES_DRAIN: "现有节点不再接新的（{nodes}）：请另启动一个。",
        Text.CONCURRENCY: "{job} 同时最多运行 {most} 个（concurrency），现有：{runs}。",
        Text.WAITS_FOR_RUN: "它在等待运行 {run}（{state}，overlap={overlap}）。",
        Text.NODES_FULL: "所有节点已满：请另启动一个，或允许更多（--concurrency）。",
        Text.DUE_JUST_NOW: "它到期于 {when}：马上会有节点领取。",
        Text.NODES_HAVE_FREE_SLOTS: "它到期于 {when}，且有空闲的节点在线：{nodes}。",
        Text.NO_FUNCTION: "很可能都没有函数 {function}：请启动声明了它的节点。",
        Clause.NOW: "现在",
        Clause.IN: "{time} 后",
        Clause.AGO: "{time} 前",
        Clause.AHEAD: "比存储的时钟超前 {time}",
        Clause.IN_BRACKETS: "{what}（{more}）",
        Clause.DETAILED: "{clause}：{detail}",
        Clause.BY_BECAUSE: "由 {who}，原因：{why}",
        Clause.BY_AT: "由 {who} 于 {time}",
        Clause.BY_AT_BECAUSE: "由 {who} 于 {time}，原因：{why}",
        Clause.PAUSED_UNTIL: "{start} 至 {end}",
        Clause.PAUSED_STILL: "自 {start} 起，至今仍是",
        Clause.PAUSED_BY: "{pause}，由 {who}",
        Clause.PAUSED_BY_BECAUSE: "{pause}，由 {who}，原因：{why}",
        Clause.SOMEBODY: "某人",
        Clause.NO_REASON_GIVEN: "未说明原因",
        Clause.NO_REASON: "没有记录原因",
        Clause.NO_ERROR: "没有记录错误",
        Clause.NODE_LOST: "节点失联",
        Clause.FAILED_TIMES: "失败 {times:,} 次",
        Clause.WAS_CUT_OFF: "被中断",
        Clause.WAITS_FOR: "等待 {what}",
        Clause.RUN_ON: "运行 {run}（节点 {node}）",
        Clause.OF_RELEASE: "{node}（发布版本 {release}）",
        Clause.ENDED: "{node} 于 {time} 结束（{end}）",
        Clause.CAME: "{node} 于 {time} 上线",
        Clause.STANDS_STILL: "{job} 停着不动，直到 {until}（{when}）：{why}",
        Clause.WATERMARK_AHEAD: "它的水位线比存储的时钟超前 {ahead}",
        Clause.LATER_THAN_TRIGGER: "触发器在 {when}就有一个时间，存储记的却更晚",
        Clause.STOPPED: "已停住，最后一次见到：{ago}",
        Clause.PROCESS_ENDED: "失联：进程已结束，最后一次见到：{ago}",
        Clause.PAST_ITS_LEASE: "失联：租约已过期 {overdue}，最后一次见到：{ago}",
        Clause.CONNECTIONS_ENDED: "失联：连接已断开，最后一次见到：{ago}",
        Clause.UNKNOWN: "状态未知，最后一次见到：{ago}",
        Clause.PROCESS_RUNS: "{lives}，进程在本机运行",
        Clause.CONNECTED: "{lives}，已连接到服务器",
        Clause.SEEN: "{lives}，最后一次见到：{ago}",
        Clause.NOT_SEEN_HERE: "{life}，但同名主机上看不到它的进程",
        Clause.IDLE: "{state}（空闲）",
        Clause.ALIVE: "在线",
        Clause.DRAINING: "正在排空",
        Clause.NOT_FIRED_YET: "还没有节点触发它",
        Clause.OF_RUN: "{origin}，针对运行 {run}",
        Clause.FIRST_OF_TWO: "{time} 出现两次：这是第一次",
        Clause.SECOND_OF_TWO: "{time} 出现两次：这是第二次",
        Clause.AFTER_THE_GAP: "{times} 当天不存在：紧接在跳过的时间之后",
        Clause.CLOCKS_GO_FORWARD: "时钟拨快 {time}",
        Clause.CLOCKS_HAVE_CHANGED: "时钟已调整：此后为 {offset}",
        Because.OVERLAP: "决定这一次时，先前的运行尚未结束，而 overlap={overlap}",
        Because.COALESCED: "catch_up=latest 只运行其间错过的最后一个",
        Because.PAUSED: "任务被暂停",
        Because.LATE: "grace 为 {grace}",
        Because.NO_CATCH_UP: "catch_up=none 不补运行",
        Because.BEYOND_WINDOW: "catch_up_window 为 {catch_up_window}",
        Because.REPLACED: "下一个已到期，而 overlap=cancel_previous",
        Because.CRASHED: "运行时节点终止（on_crash={on_crash}，max_crashes={max_crashes}）",
        Because.TIMEOUT: "运行超过其超时 {timeout}",
        Because.OPERATOR: "操作者取消了它",
        Because.RETIRED: "任务已下线",
        Because.BATCH_ENDED: "它所属的批次已结束",
        Because.UPSTREAM_FAILED: "它所依赖的任务失败了",
        Because.UPSTREAM_SUCCEEDED: "它所依赖的任务没有失败",
        Because.UPSTREAM_SKIPPED: "它所依赖的任务被跳过",
        Because.UPSTREAM_MISSING: "它所依赖的任务在该时间没有运行",
        Because.UPSTREAM_PRUNED: "它所依赖的任务的记录已被清理",
        Because.UPSTREAM_LATE: "它所依赖的任务未能及时结束（wait_for）",
        Because.JOB_SAID_SO: "任务如此要求",
    }
)


REASONS = {
    Reason.OVERLAP: "与先前的运行重叠",
    Reason.COALESCED: "已合并到更晚的一次",
    Reason.PAUSED: "任务被暂停",
    Reason.LATE: "太迟",
    Reason.NO_CATCH_UP: "不补运行（catch_up=none）",
    Reason.BEYOND_WINDOW: "超出 catch_up_window",
    Reason.REPLACED: "被下一次取代",
    Reason.CRASHED: "节点终止",
    Reason.TIMEOUT: "超时",
    Reason.OPERATOR: "操作者",
    Reason.RETIRED: "任务已下线",
    Reason.BATCH_ENDED: "批次已结束",
    Reason.UPSTREAM_FAILED: "上游失败",
    Reason.UPSTREAM_SUCCEEDED: "上游成功",
    Reason.UPSTREAM_SKIPPED: "上游被跳过",
    Reason.UPSTREAM_MISSING: "上游没有运行",
    Reason.UPSTREAM_PRUNED: "上游记录已被清理",
    Reason.UPSTREAM_LATE: "上游未能及时结束",
    Reason.JOB_SAID_SO: "任务如此要求",
    "process gone": "进程已结束",
}
"""Reasons as the ledger records them, before their colon."""
UNITS = {"ms": "毫秒", "s": "秒", "m": "分钟", "h": "小时", "d": "天"}
_UNIT = re.compile(r"(\d[\d.]*)(ms|[smhd])(?![A-Za-z])")


class Chinese(Language):
    """Says sentences in Chinese."""

    comma = "、"

    def text_of(self, code: Code) -> str:
        """Return the text of a code."""
        return SENTENCES[code]

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value in Chinese."""
        match value:
            case State():
                return CHINESE[value]
            case Trigger():
                return schedule_in_chinese(value)
            case timedelta():
                return duration_in_chinese(brief_duration(value))
            case _:
                return super().format_field(value, format_spec)


def duration_in_chinese(text: str) -> str:
    """Translate a duration that is text in English: ``11m 1s``."""
    return _UNIT.sub(lambda match: f"{match[1]} {UNITS[match[2]]}", text)


def reason_in_chinese(text: str) -> str:
    """Return a recorded reason; what follows its colon stays as it is, unless it is a reason, too."""
    if text in REASONS:
        return REASONS[text]
    head, colon, detail = text.partition(": ")
    return f"{REASONS[head]}：{reason_in_chinese(detail)}" if colon and head in REASONS else text
