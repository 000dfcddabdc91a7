// Package etcd runs etcd, against which the benches hold a cluster.
package etcd
