<?php
/* Calls the functions of docs/guide/write/php.md, each for an order of its own. */

use Doctrine\ORM\Configuration;
use Doctrine\ORM\EntityManager;
use Doctrine\ORM\Mapping as ORM;
use Doctrine\ORM\Mapping\Driver\AttributeDriver;

error_reporting(E_ALL & ~E_DEPRECATED);
set_error_handler(fn($number, $message) => $number & error_reporting() ? throw new ErrorException($message) : true);
require 'outbox.php';
require 'with_doctrine.php';
require 'Doctrine/ORM/autoload.php';

#[ORM\Entity]
#[ORM\Table(name: 'orders')]
class Order
{
	#[ORM\Id]
	#[ORM\Column(type: 'bigint')]
	public $id;

	#[ORM\Column(type: 'text')]
	public $state;
}

$pdo = connect('pgsql:host=' . getenv('PGHOST') . ';port=' . getenv('PGPORT') . ';dbname=' . getenv('PGDATABASE'),
	getenv('PGUSER'));
echo 'json 1 ', pay($pdo, 1), "\n";
echo 'bytes 2 ', pay_in_bytes($pdo, 2, "\x00\x01\xff"), "\n";

$configuration = new Configuration();
$configuration->setMetadataDriverImpl(new AttributeDriver([__DIR__]));
$configuration->setProxyDir(__DIR__);
$configuration->setProxyNamespace('Proxies');
$manager = EntityManager::create(
	['driver' => 'pdo_pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'), 'user' => getenv('PGUSER'),
		'dbname' => getenv('PGDATABASE')], $configuration);
echo 'json 3 ', pay_with_doctrine($manager, 3), "\n";
