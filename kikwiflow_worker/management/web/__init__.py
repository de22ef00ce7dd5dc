"""The dashboard: pages for people, rendered here, that work without JavaScript and without network access.

Each page module has a ``router`` made by ``pages.page_router`` and is listed in ``router.py``; it reads with the
``Caller`` of ``backend``, and gives what it found to ``pages.render``. What changes something is a form: shown by GET,
done by POST, and answered with ``pages.done``.
"""
