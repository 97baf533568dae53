{{- /*
The exporter's configuration, as JSON: that is YAML too, and the exporter of a node then needs not
load the YAML library (1.3 MiB). Full resource names are prefixes, so "….shared" is included.
*/}}
{{- define "npu-platform.exporter.config" -}}
{{- $prefixes := concat (include "npu-platform.plugin.resources" . | fromJsonArray) (list "huawei.com/") }}
{{- dict
  "resourcePrefixes" $prefixes
  "collectorDeadlineSeconds" .Values.exporter.collectorDeadlineSeconds
  "podRetentionSeconds" .Values.exporter.podRetentionSeconds
  | toPrettyJson }}
{{- end -}}
