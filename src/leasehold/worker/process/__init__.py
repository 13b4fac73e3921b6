"""Runs a job in its own process, for code that holds the GIL, leaks or crashes.

worker                      guard                        child
a thread of the worker      imports next to nothing;     a fresh interpreter, forked off
serves and waits            ends all processes of        by the guard before it imports
(`attempt`, `rpc`)          the child (`guard`)          anything: the handler
                                                         (`main`, `rpc`)
     └───── control: stop, started, ended ─────┘               │
     └───────────── channel: the message; verbs and answers; the ending ─────────┘
"""
