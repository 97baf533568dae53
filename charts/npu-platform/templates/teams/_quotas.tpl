{{/*
The quotas with every setting present: an entry of the list names only what differs.
Takes the root, gives JSON: a list of dicts.
*/}}
{{- define "npu-platform.quotas" -}}
{{- $quotas := list -}}
{{- range $entry := .Values.quotas -}}
{{- $quotas = append $quotas (mergeOverwrite (dict "name" "npu" "createNamespace" false "namespaceLabels" dict "scopeSelector" dict "maxPerContainer" dict "limitRange" (not (empty $entry.maxPerContainer)) "members" (dict "clusterRole" "edit" "subjects" list)) (deepCopy $entry)) -}}
{{- end -}}
{{- $quotas | toJson -}}
{{- end -}}

{{/*
What one container may have of each NPU resource in a quota, where it has a limit range. A board has
one Rockchip NPU and a slot is a turn on it, so a container that asks for two would wait for ever;
cards of other vendors come several to a node. Takes a quota, gives JSON: resource → number as a string.
*/}}
{{- define "npu-platform.quota.maxPerContainer" -}}
{{- $most := dict -}}
{{- range $key, $hard := .hard -}}
{{- $resource := trimPrefix "requests." $key -}}
{{- if and (hasPrefix "requests." $key) (contains "/" $resource) -}}
{{- if and (hasPrefix "rockchip.com/" $resource) (gt (int64 $hard) 1) -}}
{{- $most = set $most $resource "1" -}}
{{- else -}}
{{- $most = set $most $resource (include "npu-platform.quota.number" $hard) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $resource, $number := .maxPerContainer -}}
{{- $most = set $most $resource (include "npu-platform.quota.number" $number) -}}
{{- end -}}
{{- $most | toJson -}}
{{- end -}}

{{/* A number of a values file as a Kubernetes quantity: whole ones without an exponent. */}}
{{- define "npu-platform.quota.number" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ printf "%.0f" . }}{{ else }}{{ toString . }}{{ end -}}
{{- end -}}

{{/*
Who may take NPUs at all, and what the others are told. Takes (dict "root" $ "namespaces" LIST), the
namespaces with a share.
*/}}
{{- define "npu-platform.quotasRequired.validations" -}}
validations:
  - expression: >-
      request.namespace in {{ toJson (concat (.namespaces | uniq) .root.Values.quotasRequired.exemptNamespaces (list (include "npu-platform.namespace" .root)) | uniq | sortAlpha) | replace "\"" "'" }} ||
      namespaceObject.metadata.?labels['npu-platform.io/quota'].orValue('') == 'own'
    messageExpression: >-
      'namespace ' + request.namespace + ' has no NPU quota; {{ .root.Values.quotasRequired.contact | replace "\\" "" | replace "'" "" | default "ask the administrator of the cluster for one" }}'
    reason: Forbidden
{{- end -}}
