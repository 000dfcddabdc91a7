package main

import "slices"

// alert is one alert rule, with what makes it fire in a test and what must not.
type alert struct {
	name     string
	expr     string
	after    string // how long it must be true: the rule's "for"
	severity string
	summary  string // one line; {{ $labels.instance }} and such are filled in by Prometheus
	shows    string // the value in the case in which it fires, as the summary prints it, if it does
	means    string // for the page: what is wrong, and for whom
	look     string // for the page: the command to begin with
	do       string // for the page: what ends it
	cases    []example
}

// Severities: page wakes an operator, ticket is seen to in working hours.
const (
	page   = "page"
	ticket = "ticket"
)

// example is one case of promtool: series, and the time at which the alert is looked at.
type example struct {
	series []series
	at     string
	fires  []map[string]string // labels of the alerts that fire then; none: it must not
}

// series is one input of a case in the notation of promtool, one value for each minute.
type series struct{ name, values string }

// server are the labels of a server in the cases.
var server = map[string]string{"instance": "s1", "job": "rutter-server"}

// node are the labels of a compute node in the cases.
var node = map[string]string{"instance": "cn1", "job": "rutter-agent"}

// more returns labels with others beside them.
func more(labels map[string]string, pairs ...string) map[string]string {
	all := map[string]string{}
	for k, v := range labels {
		all[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

// ofServer are the cases of an alert on one metric of a server: good for bad's place must
// not fire. A blip of a minute does not either.
func ofServer(metric, good, bad, at string, labels ...string) []example {
	return onOne(server, metric, good, bad, at, labels)
}

// ofNode is ofServer for a metric of a compute node.
func ofNode(metric, good, bad, at string, labels ...string) []example {
	return onOne(node, metric, good, bad, at, labels)
}

func onOne(who map[string]string, metric, good, bad, at string, labels []string) []example {
	all := more(who, labels...)
	return []example{
		{series: []series{{metric + selector(all), bad}}, at: at, fires: []map[string]string{all}},
		{series: []series{{metric + selector(all), good}}, at: at},
	}
}

// alerts are all, in the order of the page.
func alerts() []alert {
	var all []alert
	for _, group := range groups() {
		all = append(all, group.alerts...)
	}
	return all
}

// group is a group of rules.
type group struct {
	name, title string
	alerts      []alert
}

func groups() []group {
	return []group{
		{"rutter-servers", "The cluster", slices.Concat(serverAlerts(), logAlerts(), surfaceAlerts())},
		{"rutter-disks-and-clocks", "Disks, clocks, certificates, backups", slices.Concat(roomAlerts(), timeAlerts(), backupAlerts())},
		{"rutter-nodes", "Compute nodes, as the servers see them", slices.Concat(nodeAlerts(), delayAlerts())},
		{"rutter-agents", "Compute nodes, as they say themselves", agentAlerts()},
	}
}
