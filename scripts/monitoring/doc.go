// Command monitoring makes the files of this folder from its tables, and the page
// docs/alerts.md:
//
//   - alerts.yml, the alert rules of Prometheus,
//   - alerts_test.yml and alerts_day_test.yml, for each of them a case in which it fires and one in which it must
//     not (promtool test rules),
//   - dashboard.json, a dashboard of Grafana.
//
// "go run ./scripts/monitoring" writes them. A test compares them with the tables, gives
// them to promtool, and looks each metric up in docs/metrics.md.
//
// The rules expect the job names of prometheus.yml beside them: rutter-server for servers,
// rutter-agent for compute nodes.
package main
