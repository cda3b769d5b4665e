module podbay.dev/rig/gateway-api

go 1.26.0

// Only its CRDs are used.
require sigs.k8s.io/gateway-api v1.6.3
