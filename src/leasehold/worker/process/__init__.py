"""Runs a job in its own process, for code that holds the GIL, leaks or crashes.

worker                      guard                        child
a thread of the worker      imports next to nothing;     a fresh interpreter, forked off
serves and waits            ends what it must not        by the guard before it imports
(`attempt`, `child`,        outlive (`guard`)            anything: the handler
`rpc_server`)                                            (`main`, `rpc_client`)
     └───── control: stop, started, ended ─────┘               │
     └───────────── channel: the sheet; verbs and answers; the ending ─────────┘
"""
