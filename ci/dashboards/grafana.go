// Says what Grafana's own schema refuses in the dashboards named on the command line.
//
// The schema is strict: unknown keys, wrong types and missing keys are refused, in panels and queries
// too. Only the kinds of panels that the dashboards use are known here.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/text"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	runtime := cog.NewRuntime()
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	runtime.RegisterPanelcfgVariant(heatmap.VariantConfig())
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	runtime.RegisterPanelcfgVariant(table.VariantConfig())
	runtime.RegisterPanelcfgVariant(text.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	refused := false
	for _, name := range os.Args[1:] {
		content, err := os.ReadFile(name)
		if err == nil {
			var found dashboard.Dashboard
			if err = found.UnmarshalJSONStrict(content); err == nil {
				err = found.Validate()
			}
		}
		// Validate returns an empty list of errors for none, which is not nil.
		if err != nil && err.Error() != "" {
			refused = true
			fmt.Printf("%s: %v\n", name, err)
		}
	}
	if refused {
		os.Exit(1)
	}
}
