"""Texts that do something where they are taken for HTML, an attribute, a template or an address."""

HOSTILE = (
    "<script data-planted>alert(1)</script>",
    '"><img data-planted src=x onerror=alert(1)>',
    "'\"><svg data-planted onload=alert(1)></svg>",
    "</textarea><b data-planted>bold</b>",
    "</title></head><body data-planted onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}${7 * 7}<%= 7 * 7 %>",
    "--><style data-planted>*{display:none}</style>",
    "]]><a data-planted href='javascript:alert(1)'>x</a>",
    '" autofocus onfocus=alert(1) data-planted="',
    "\u2028<iframe data-planted srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "<use data-planted href='data:image/svg+xml,<svg id=x onload=alert(1)/>#x'/>",
)
