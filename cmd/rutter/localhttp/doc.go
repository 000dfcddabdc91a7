// Package localhttp serves the small HTTP surfaces of daemons on a compute node,
// such as GET /status, with bounds on time.
package localhttp
