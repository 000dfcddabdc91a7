package main

import "fmt"

// Forms of a dashboard as Grafana reads it (grafana.com/docs, "Dashboard JSON model",
// schemaVersion 39).
type (
	dashboard struct {
		UID           string     `json:"uid"`
		Title         string     `json:"title"`
		Description   string     `json:"description"`
		Tags          []string   `json:"tags"`
		SchemaVersion int        `json:"schemaVersion"`
		Editable      bool       `json:"editable"`
		Refresh       string     `json:"refresh"`
		Time          timeRange  `json:"time"`
		GraphTooltip  int        `json:"graphTooltip"` // 1: one crosshair on all panels
		Templating    templating `json:"templating"`
		Panels        []panel    `json:"panels"`
	}
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		Name       string  `json:"name"`
		Label      string  `json:"label"`
		Type       string  `json:"type"`
		Query      any     `json:"query"`
		Datasource *source `json:"datasource,omitempty"`
		Refresh    int     `json:"refresh,omitempty"` // 2: when the time range changes
		Multi      bool    `json:"multi,omitempty"`
		IncludeAll bool    `json:"includeAll,omitempty"`
		AllValue   string  `json:"allValue,omitempty"`
		Current    any     `json:"current,omitempty"`
	}
	source struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	panel struct {
		ID          int      `json:"id"`
		Type        string   `json:"type"`
		Title       string   `json:"title"`
		Description string   `json:"description,omitempty"`
		GridPos     gridPos  `json:"gridPos"`
		Datasource  *source  `json:"datasource,omitempty"`
		Targets     []target `json:"targets,omitempty"`
		FieldConfig *fields  `json:"fieldConfig,omitempty"`
		Options     any      `json:"options,omitempty"`
		Collapsed   *bool    `json:"collapsed,omitempty"`
	}
	gridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	target struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat,omitempty"`
		Instant      bool   `json:"instant,omitempty"`
		Format       string `json:"format,omitempty"`
	}
	fields struct {
		Defaults  fieldDefaults `json:"defaults"`
		Overrides []any         `json:"overrides"`
	}
	fieldDefaults struct {
		Unit       string      `json:"unit"`
		Min        *float64    `json:"min,omitempty"`
		Thresholds *thresholds `json:"thresholds,omitempty"`
		Custom     any         `json:"custom,omitempty"`
	}
	thresholds struct {
		Mode  string `json:"mode"`
		Steps []step `json:"steps"`
	}
	step struct {
		Color string   `json:"color"`
		Value *float64 `json:"value"`
	}
)

// prometheus is the data source that the viewer chooses.
var prometheus = &source{Type: "prometheus", UID: "${datasource}"}

// row is a row of panels of the dashboard.
type row struct {
	title  string
	panels []chart
}

// chart is one panel: a number (bad > 0: red from there on; bad < 0: red below -bad), or a
// graph over time.
type chart struct {
	title, about, unit string
	number             bool
	bad                float64
	width              int // of 24
	queries            []query
}

type query struct{ expr, legend string }

func rows() []row {
	return []row{
		{"Is all well", []chart{
			{title: "Servers that can serve", number: true, bad: -3, width: 4, queries: []query{{`count(rutter_ready == 1) or vector(0)`, ""}}},
			{title: "Leaders", number: true, bad: -1, width: 4, queries: []query{{`sum(rutter_store_leader) or vector(0)`, ""}}},
			{title: "Alerts", about: "Alerts of alerts.yml that fire.", number: true, bad: 1, width: 4, queries: []query{{`count(ALERTS{alertname=~"Rutter.*",alertstate="firing"}) or vector(0)`, ""}}},
			{title: "Nodes that are not heard of", number: true, bad: 1, width: 4, queries: []query{{`max(rutter_cns{status="unknown"}) or vector(0)`, ""}}},
			{title: "Nodes behind", number: true, bad: 1, width: 4, queries: []query{{`sum(rutter_cns_behind) or vector(0)`, ""}}},
			{title: "NICs waiting", number: true, bad: 1, width: 4, queries: []query{{`sum(rutter_nics_waiting) or vector(0)`, ""}}},
		}},
		{"Changes", []chart{
			{title: "Changes a second", about: "Taken by the leader.", unit: "ops", width: 8, queries: []query{{`sum(rate(rutter_store_proposals_total[$__rate_interval]))`, "taken"}, {`sum(rate(rutter_store_refused_total[$__rate_interval]))`, "decided against"}}},
			{title: "From acknowledged to programmed", about: "Until a node that is concerned has it in its kernel, on one server's clock.", unit: "s", width: 8, queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(rutter_programmed_seconds_bucket[$__rate_interval])))`, "p50"},
				{`histogram_quantile(0.99, sum by (le) (rate(rutter_programmed_seconds_bucket[$__rate_interval])))`, "p99"},
			}},
			{title: "Refused writes a second", unit: "ops", width: 8, queries: []query{{`sum by (code) (rate(rutter_writes_refused_total[$__rate_interval]))`, "{{code}}"}}},
		}},
		{"Servers", []chart{
			{title: "Head of the log", unit: "none", width: 8, queries: []query{{`rutter_head_seq{instance=~"$server"}`, "{{instance}}"}}},
			{title: "Time since the leader was heard", unit: "s", width: 8, queries: []query{{`rutter_store_age_seconds{instance=~"$server"}`, "{{instance}}"}}},
			{title: "Requests a second", unit: "reqps", width: 8, queries: []query{{`sum by (instance, status) (rate(rutter_http_requests_total{instance=~"$server"}[$__rate_interval]))`, "{{instance}} {{status}}"}}},
			{title: "Room on disk above the low water", unit: "bytes", width: 8, queries: []query{{`rutter_store_disk_usable_bytes{instance=~"$server"} - rutter_store_disk_low_water_bytes`, "{{instance}}"}}},
			{title: "Clock offsets", about: "Ahead of the clock that the servers agree on.", unit: "s", width: 8, queries: []query{{`max by (server) (rutter_store_clock_offset_seconds)`, "{{server}}"}}},
			{title: "Resident memory", unit: "bytes", width: 8, queries: []query{{`process_resident_memory_bytes{job="rutter-server",instance=~"$server"}`, "{{instance}}"}}},
			{title: "First certificate to end", unit: "s", number: true, bad: -604800, width: 8, queries: []query{{`min(rutter_tls_not_after_seconds) - time()`, ""}}},
			{title: "Age of the last verified backup", unit: "s", number: true, width: 8, queries: []query{{`min(time() - rutter_backup_last_verified_timestamp_seconds > 0)`, ""}}},
			{title: "Versions", unit: "none", width: 8, queries: []query{{`count by (job, version) (rutter_build_info)`, "{{job}} {{version}}"}}},
		}},
		{"Compute nodes", []chart{
			{title: "By status", unit: "none", width: 8, queries: []query{{`max by (status) (rutter_cns)`, "{{status}}"}}},
			{title: "Worst lag", about: "The ten nodes of each server that are behind most.", unit: "s", width: 8, queries: []query{{`topk(10, rutter_cn_lag_seconds)`, "{{cn}}"}}},
			{title: "Failing objects", unit: "none", width: 8, queries: []query{{`topk(10, rutter_cn_failing_objects)`, "{{cn}}"}}},
			{title: "Differences put right", about: "What other programs changed, a second.", unit: "ops", width: 8, queries: []query{{`topk(10, sum by (instance, object) (rate(rutter_agent_drift_total[$__rate_interval])))`, "{{instance}} {{object}}"}}},
			{title: "Dropped frames of VMs a second", unit: "pps", width: 8, queries: []query{{`topk(10, sum by (instance, vm, reason) (rate(rutter_agent_port_drops_total[$__rate_interval])))`, "{{instance}} {{vm}} {{reason}}"}}},
			{title: "From arrival at the node to its kernel", unit: "s", width: 8, queries: []query{{`histogram_quantile(0.99, sum by (le) (rate(rutter_agent_programmed_seconds_bucket[$__rate_interval])))`, "p99"}}},
			{title: "Time without a server", unit: "s", width: 8, queries: []query{{`topk(10, rutter_agent_unfed_seconds)`, "{{instance}}"}}},
			{title: "Streams and sessions", unit: "none", width: 8, queries: []query{{`rutter_cns_connected`, "nodes at {{instance}}"}, {`rutter_streams`, "streams at {{instance}}"}}},
			{title: "Agents that answer", unit: "none", width: 8, queries: []query{{`sum(up{job="rutter-agent"})`, "up"}, {`count(up{job="rutter-agent"})`, "all"}}},
		}},
	}
}

// theDashboard is the dashboard of all rows.
func theDashboard() dashboard {
	d := dashboard{
		UID: "rutter", Title: "Rutter", Tags: []string{"rutter"}, SchemaVersion: 39, Editable: true,
		Description: made, Refresh: "30s", Time: timeRange{"now-3h", "now"}, GraphTooltip: 1,
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus"},
			{
				Name: "server", Label: "Server", Type: "query", Datasource: prometheus, Refresh: 2, Multi: true, IncludeAll: true, AllValue: ".*",
				Query:   map[string]any{"query": `label_values(rutter_ready, instance)`, "refId": "server"},
				Current: map[string]any{"text": "All", "value": "$__all"},
			},
		}},
	}
	id, y := 0, 0
	place := func(p panel) {
		id++
		p.ID = id
		d.Panels = append(d.Panels, p)
	}
	for _, r := range rows() {
		closed := false
		place(panel{Type: "row", Title: r.title, GridPos: gridPos{1, 24, 0, y}, Collapsed: &closed})
		y++
		x, high := 0, 0
		for _, c := range r.panels {
			if x+c.width > 24 {
				x, y = 0, y+high
			}
			p := c.panel()
			p.GridPos.X, p.GridPos.Y = x, y
			place(p)
			x, high = x+c.width, p.GridPos.H
		}
		y += high
	}
	return d
}

// panel is the chart as Grafana reads it, without its place.
func (c chart) panel() panel {
	p := panel{Type: "timeseries", Title: c.title, Description: c.about, Datasource: prometheus, GridPos: gridPos{H: 8, W: c.width}}
	zero := 0.0
	p.FieldConfig = &fields{Defaults: fieldDefaults{Unit: or(c.unit, "none"), Min: &zero}, Overrides: []any{}}
	if c.number {
		p.Type, p.GridPos.H = "stat", 4
		p.FieldConfig.Defaults.Min = nil
		p.FieldConfig.Defaults.Thresholds = c.thresholds()
		p.Options = map[string]any{"colorMode": "value", "graphMode": "area", "reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	}
	for i, q := range c.queries {
		p.Targets = append(p.Targets, target{RefID: fmt.Sprintf("%c", 'A'+i), Expr: q.expr, LegendFormat: q.legend})
	}
	return p
}

func (c chart) thresholds() *thresholds {
	switch {
	case c.bad > 0:
		return &thresholds{"absolute", []step{{"green", nil}, {"red", &c.bad}}}
	case c.bad < 0:
		enough := -c.bad
		return &thresholds{"absolute", []step{{"red", nil}, {"green", &enough}}}
	}
	return &thresholds{"absolute", []step{{"green", nil}}}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
