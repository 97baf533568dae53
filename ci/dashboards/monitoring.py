"""The row about the monitoring itself: what Prometheus gets, how fast and how complete."""

from ci.dashboards.frame import Row
from ci.dashboards.panels import Values, lines, table
from ci.dashboards.query import RAW, line, rows


def monitoring() -> Row:
    """Return the row, which is closed until somebody asks."""
    return Row(
        title="Is the monitoring well?",
        collapsed=True,
        panels=[
            lines(
                "Collectors that work",
                "Part of the nodes on which a collector of the exporter delivers, per collector."
                " Below 100 %: NpuCollectorFailing says where.",
                [
                    line(
                        f"avg by (collector) (npu_scrape_collector_success{{{RAW}}})",
                        "{{collector}}",
                    )
                ],
                Values(unit="percentunit", empty="no exporter", low=0, high=1),
                width=8,
            ),
            lines(
                "Oldest load sample",
                "Age of the last good sample of the worst node. Normal is a few seconds more than"
                " the scrape interval.",
                [
                    line(
                        f"max(time() - npu_last_sample_timestamp_seconds{{{RAW}}})", "oldest sample"
                    )
                ],
                Values(unit="s", empty="no samples", low=0),
                width=8,
            ),
            lines(
                "Scrape duration",
                "Time Prometheus needs for a scrape, the slowest target of each job.",
                [line(f"max by (job) (scrape_duration_seconds{{{RAW}}})", "{{job}}")],
                Values(unit="s", empty="no targets", low=0),
                width=8,
            ),
            lines(
                "Series per target",
                "Samples in a scrape, the largest target of each job; an exporter stays below 100"
                " plus two per Pod that holds an NPU.",
                [line(f"max by (job) (scrape_samples_scraped{{{RAW}}})", "{{job}}")],
                Values(unit="short", empty="no targets", low=0),
                width=8,
            ),
            lines(
                "Nodes whose kubelet tells who holds NPUs",
                "Part of the nodes on which the kubelet's PodResources socket answers. Without it"
                " use is attributed to no Pod.",
                [line(f"avg(npu_podresources_up{{{RAW}}})", "answering")],
                Values(unit="percentunit", empty="not asked", low=0, high=1),
                width=8,
            ),
            lines(
                "Restarts",
                "Starts of the platform's daemons, summed over nodes.",
                [
                    line(
                        f"sum by (job) (changes(process_start_time_seconds{{{RAW}}}"
                        "[$__rate_interval]))",
                        "{{job}}",
                    )
                ],
                Values(unit="short", empty="no targets", low=0),
                width=8,
            ),
            table(
                "Versions",
                "Drivers and runtime libraries in the fleet. `simulated` boards compute nothing.",
                [
                    rows(
                        "count by (vendor, model, driver, driver_version, library_version,"
                        f" simulated) (npu_info{{{RAW}}})"
                    )
                ],
                {
                    "vendor": "Vendor",
                    "model": "Model",
                    "driver": "Driver",
                    "driver_version": "Driver version",
                    "library_version": "Library version",
                    "simulated": "Simulated",
                    "Value": "NPUs",
                },
                empty="No node with an NPU",
                size=(24, 7),
            ),
        ],
    )
