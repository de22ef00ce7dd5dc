"""The HTTP API and the dashboard: what people and other programs use to see and put right what runs.

Needs the extra ``management``. It works with ``operations`` and the read port only, so everything that it can do the
client can do too, and a worker runs without it.
"""
