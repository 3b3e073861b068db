"""The results as static pages: ``python -m reproduce.report.site build``, then open ``site/index.html``.

Everything follows from the records and the checkout; nothing is fetched, at build time or by the pages.
"""
