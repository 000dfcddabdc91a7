// Package pkiclient asks servers for what they know of certificates: tokens, what was
// issued and revoked, a compute node's first certificate and its next ones; and it
// makes the short-lived authorities of rutter dev and rutter demo.
package pkiclient
