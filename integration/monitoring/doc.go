// Package monitoring has the test of docs/monitoring.md and scripts/monitoring with a real
// Prometheus beside real servers and agents: what is scraped, which alerts fire when an
// agent stops and clear when it is back, and what the dashboard's queries answer.
package monitoring
