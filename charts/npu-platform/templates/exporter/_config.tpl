{{/* Configuration file of the exporter. Takes the root. */}}
{{- define "npu-platform.exporter.config" -}}
# Full names are prefixes too, so "….shared" is included.
resourcePrefixes: {{ concat (include "npu-platform.plugin.resources" . | fromJsonArray) (list "huawei.com/") | toJson }}
collectorDeadlineSeconds: {{ .Values.exporter.collectorDeadlineSeconds }}
podRetentionSeconds: {{ .Values.exporter.podRetentionSeconds }}
{{- end -}}
