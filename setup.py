"""Installation of laimr_ros, by colcon (ROS 2) and by pip alike."""

from pathlib import Path
import xml.etree.ElementTree as ElementTree

from setuptools import find_packages, setup

package_name = 'laimr_ros'
manifest = ElementTree.parse(Path(__file__).resolve().parent / 'package.xml').getroot()


def text_of(tag: str) -> str:
    """Return the text of one element of package.xml, on one line."""
    return ' '.join(manifest.findtext(tag).split())


def requirements() -> list[str]:
    """Return what pip has to bring; ROS 2 itself comes from ROS or requirements/ros.txt."""
    lines = Path(__file__).with_name('requirements').joinpath('run.txt').read_text().splitlines()
    stripped = (line.split('#')[0].strip() for line in lines)
    return [line for line in stripped if line]


def files_in(directory: str, pattern: str) -> list[str]:
    """Return the files of a directory of the checkout, relative to it."""
    return sorted(str(path) for path in Path(directory).glob(pattern) if path.is_file())


setup(
    name=package_name,
    version=text_of('version'),
    description=text_of('description'),
    license=text_of('license'),
    maintainer=text_of('maintainer'),
    maintainer_email=manifest.find('maintainer').get('email'),
    packages=find_packages(include=[package_name, f'{package_name}.*']),
    package_data={
        package_name: ['py.typed', 'weights/*', 'simulation/*.yaml', 'evaluation/*.yaml']},
    data_files=[
        ('share/ament_index/resource_index/packages', [f'resource/{package_name}']),
        (f'share/{package_name}', ['package.xml']),
        (f'share/{package_name}/launch', files_in('launch', '*.launch.*')),
        (f'share/{package_name}/config', files_in('config', '*')),
    ],
    python_requires='>=3.10',
    install_requires=requirements(),
    extras_require={'test': ['pytest', 'pytest-asyncio', 'pytest-timeout', 'hypothesis']},
    zip_safe=False,
    entry_points={
        'console_scripts': [
            f'camera = {package_name}.nodes.entry:camera',
            f'dispatcher = {package_name}.nodes.entry:dispatcher',
            f'worker = {package_name}.nodes.entry:worker',
            f'local_bridge = {package_name}.nodes.entry:local_bridge',
            f'kubernetes_bridge = {package_name}.nodes.entry:kubernetes_bridge',
            f'laimr = {package_name}.cli.main:main',
        ],
    },
)
