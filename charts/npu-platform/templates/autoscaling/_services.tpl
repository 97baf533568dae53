{{/*
The services to scale with every setting present, `most` (replicas, bounded by the quotas of the
namespace) among them. Takes the root, gives JSON: a list of dicts.
*/}}
{{- define "npu-platform.autoscaling.services" -}}
{{- $services := list -}}
{{- $seen := dict -}}
{{- range $entry := .Values.autoscaling.services -}}
{{- $usual := dict "workload" "Deployment" "serviceName" $entry.name "resource" "rockchip.com/npu" "npusPerReplica" 1 "coresPerReplica" 1 "minReplicas" 1 "maxReplicas" 10 "queueDepth" 4 "busyRatio" 0.7 "pollingSeconds" 15
    "scaleUp" (dict "stabilizationSeconds" 0 "pods" 2 "periodSeconds" 60)
    "scaleDown" (dict "stabilizationSeconds" 300 "pods" 1 "periodSeconds" 120) -}}
{{- $service := mergeOverwrite $usual (deepCopy $entry) -}}
{{- $where := printf "%s/%s" $service.namespace $service.name -}}
{{- if hasKey $seen $where -}}
{{- fail (printf "autoscaling.services: %s is there twice" $where) -}}
{{- end -}}
{{- $_ := set $seen $where true -}}
{{- $most := int $service.maxReplicas -}}
{{- range $quota := $.Values.quotas -}}
{{- if and (eq $quota.namespace $service.namespace) (not $quota.scopeSelector) -}}
{{- $key := printf "requests.%s" $service.resource -}}
{{- if hasKey $quota.hard $key -}}
{{- $most = min $most (div (int (index $quota.hard $key)) (int $service.npusPerReplica)) | int -}}
{{- end -}}
{{- $pods := include "npu-platform.quota.number" ($quota.hard.pods | default "") -}}
{{- if regexMatch "^[0-9]+$" $pods -}}
{{- $most = min $most (int $pods) | int -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if lt $most (int $service.minReplicas) -}}
{{- fail (printf "autoscaling.services: %s may have %d replicas by maxReplicas and quotas, minReplicas is %d" $where $most (int $service.minReplicas)) -}}
{{- end -}}
{{- $services = append $services (set $service "most" $most) -}}
{{- end -}}
{{- $services | toJson -}}
{{- end -}}

{{/* How fast replicas come and go: the `behavior` of a HorizontalPodAutoscaler. Takes a service. */}}
{{- define "npu-platform.autoscaling.behavior" -}}
{{- range $direction := list "scaleUp" "scaleDown" }}
{{- $pace := index $ $direction }}
{{ $direction }}:
  stabilizationWindowSeconds: {{ int $pace.stabilizationSeconds }}
  selectPolicy: Max
  policies:
    - type: Pods
      value: {{ int $pace.pods }}
      periodSeconds: {{ int $pace.periodSeconds }}
{{- end }}
{{- end -}}

{{/* The busy cores of a replica from which on another one is wanted, empty for never. */}}
{{- define "npu-platform.autoscaling.busyCores" -}}
{{- if gt (float64 .busyRatio) 0.0 }}{{ round (mulf (float64 .busyRatio) (float64 .coresPerReplica)) 3 | toString }}{{ end -}}
{{- end -}}
