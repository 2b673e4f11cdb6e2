"""Learners in processes of their own: nodes that gossip over Zenoh, with a ledger that survives crashes.

Rooms, each imports only from those below it:

- `startup`: the process of a node; `checkup`: its own data
- `changes`, `backups`: how a network goes on: new members, a longer horizon, another machine, a new version
- `ledgers`, `takehome`: runs and what they cost together, the model of a node
- `enrolment`, `directory`, `settings`: how sites become a network, the files of a node, its node.toml
- `registry`: all runs over the same data on their owner's machine
- `membership`: the agreement of a network, and the keys of its members
- `node`: the loop, the learner, its gossip, what it says to neighbours and hears from them, what it may still spend
- `web`: what a node shows of itself; `store`: what stays on disk
- `data`: samples and where they come from; `wire`: frames, the transport, certificates
- `dependencies`: what must be installed

A message on its way, where `node/node.py` calls one after the other: data/tapes, data/lines, data/reader, data/samples
(a block), node/participant (learn and speak), node/gossip (what goes to whom), wire/frames (bytes), store/ledger (on
disk), node/correspondence (sent), wire/zenoh_link; and at the neighbour node/inbox (kept until its step), wire/frames
(checked), node/gossip (mixed), node/participant (heard).
"""

from gossamer.net.backups import Restored, back_up, move, restore
from gossamer.net.changes import Bill, change_network, follow, upgrade
from gossamer.net.data.folder import Folder
from gossamer.net.data.followed_file import FollowedFile
from gossamer.net.data.query import Query
from gossamer.net.data.sources import Source, StandardInput, from_iterable
from gossamer.net.data.survey import Survey
from gossamer.net.directory import NodeDirectory
from gossamer.net.enrolment import admit, join, new_network, try_network
from gossamer.net.membership.agreement import Agreement, Member
from gossamer.net.membership.members import Members, Request
from gossamer.net.node.agreement import prepared
from gossamer.net.node.correspondence import Pace
from gossamer.net.node.node import Node
from gossamer.net.settings import Settings
from gossamer.net.startup import Running, launch, limit_arenas
from gossamer.net.store.ledger import Identity, Ledger, LedgerError, Row, Spent
from gossamer.net.store.vault import Sealer
from gossamer.net.store.witness import Witness
from gossamer.net.takehome import take_home
from gossamer.net.web.endpoint import Endpoint
from gossamer.net.web.server import Limits
from gossamer.net.web.status import About
from gossamer.net.web.status_board import Board, Plan
from gossamer.net.wire.frames import Format, Frame, FrameError
from gossamer.net.wire.transport import Transport
from gossamer.net.wire.zenoh_link import Files, Link, Peer, ZenohTransport

__all__ = [
    "About",
    "Agreement",
    "Bill",
    "Board",
    "Endpoint",
    "Files",
    "Folder",
    "FollowedFile",
    "Format",
    "Frame",
    "FrameError",
    "Identity",
    "Ledger",
    "LedgerError",
    "Limits",
    "Link",
    "Member",
    "Members",
    "Node",
    "NodeDirectory",
    "Pace",
    "Peer",
    "Plan",
    "Query",
    "Request",
    "Restored",
    "Row",
    "Running",
    "Sealer",
    "Settings",
    "Source",
    "Spent",
    "StandardInput",
    "Survey",
    "Transport",
    "Witness",
    "ZenohTransport",
    "admit",
    "back_up",
    "change_network",
    "follow",
    "from_iterable",
    "join",
    "launch",
    "limit_arenas",
    "move",
    "new_network",
    "prepared",
    "restore",
    "take_home",
    "try_network",
    "upgrade",
]
