{{- define "npu-platform.simulator.config" -}}
boards:
  default: {{ .Values.simulator.boards.default | quote }}
  nodes: {{ toJson .Values.simulator.boards.nodes }}
speed: {{ .Values.simulator.speed }}
ambientCelsius: {{ .Values.simulator.ambientCelsius }}
busyRatio: {{ .Values.simulator.busyRatio }}
{{- end -}}
