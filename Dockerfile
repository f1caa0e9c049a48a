# docker build --tag recbole-hyper .
# docker run --publish 127.0.0.1:8000:8000 --volume "$PWD/saved/shop:/model" recbole-hyper
#
# Serves the run in /model. The service writes its graph there, so user 1000 must be able to write into the folder.
FROM python:3.12-slim
# torch writes the graph; with --build-arg TORCH_INDEX=ADDRESS of the CPU builds the image is 4 GB smaller
ARG TORCH_INDEX=""
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch>=2.6,<3"
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY properties properties
COPY recbole_hyper recbole_hyper
RUN pip install --no-cache-dir ".[serve]" && useradd --uid 1000 --create-home serve
USER serve
WORKDIR /home/serve
EXPOSE 8000
HEALTHCHECK --interval=30s --start-period=180s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["recbole-hyper", "serve"]
CMD ["/model", "--host=0.0.0.0", "--port=8000"]
