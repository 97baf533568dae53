"""The thermal guard: keeps hot boards from getting more work.

Data flows one way: exporter pages are scraped (``scrape``, ``exposition``, ``readings``), every
device has a heat machine (``fleet``), pure functions turn heat into actions (``policy``), and an
actuator carries them out on the Node (``desired``, ``taints``, ``inventory``, ``writer``).
"""
